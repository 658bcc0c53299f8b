#include "analysis/runs/work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "analysis/base/mapped.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/read_files.hpp"
#include "core/base/stopwatch.hpp"

namespace kvscope {

namespace {

constexpr std::chrono::milliseconds kPause(100);

class ItemLoop {
 public:
  ItemLoop(const Work& work, Store& store, OnFailure on_failure, const ProgressFn& progress,
           const std::stop_token& stop)
      : work_(work),
        store_(store),
        on_failure_(on_failure),
        progress_(progress),
        stop_(stop),
        is_done_(work.keys.size()),
        is_left_alone_(work.keys.size()) {
    store.begin();
    if (!store.folder().empty()) leases_.emplace(store.leases(), store.worker());
    std::vector<double> seconds(work.keys.size());
    for (std::size_t i = 0; i < work.keys.size(); ++i) {
      if (!work.groups.empty() && work.groups[i] != i) continue;
      order_.push_back(i);
      if (work.seconds) seconds[i] = work.seconds(i);
      if (state_of_group(i) == ItemState::done)
        is_done_[i] = true;
      else
        n_steps_ += steps_of(i);
    }
    std::ranges::stable_sort(order_, std::ranges::greater(),
                             [&](std::size_t i) { return seconds[i]; });
  }

  void run() {
    for (;;) {
      std::vector<std::size_t> held;  // by others
      bool is_any_left = false;
      bool did_one = false;
      for (const std::size_t i : order_) {
        if (is_done_[i]) continue;
        check();
        const ItemState state = state_of_group(i);
        is_any_left = is_any_left || state != ItemState::done;
        if (state == ItemState::done) finish(i);
        if (state != ItemState::to_do) continue;
        std::unique_ptr<Lease> lease;
        if (leases_ && !(lease = leases_->take(work_.keys[i], stop_)))
          held.push_back(i);
        else
          did_one = attempt(i, lease.get()) || did_one;
      }
      if (!is_any_left) return;
      if (!did_one) wait(held);
    }
  }

 private:
  void check() const {
    if (stop_.stop_requested())
      throw Interrupted("{}: stopped before the next item", work_.command);
  }

  /// What is written after somebody has removed the store would bring it back.
  void require_store() {
    if (store_.folder().empty()) return;
    const bool is_there = is_store(store_.folder());
    if (was_there_ && !is_there)
      throw IoError("{} is gone: the run that it was of has ended, or was started over",
                    store_.folder().string());
    was_there_ = is_there;
  }

  /// Of the group that begins at an item.
  ItemState state_of_group(std::size_t first) const {
    for (const std::size_t i : work_.group_of(first)) {
      const ItemState state = state_of(work_, i, store_);
      if (state != ItemState::done) return state;
    }
    return ItemState::done;
  }

  std::vector<std::size_t> items_to_do(std::size_t first) const {
    std::vector<std::size_t> items = work_.group_of(first);
    std::erase_if(items,
                  [&](std::size_t i) { return state_of(work_, i, store_) == ItemState::done; });
    return items;
  }

  std::int64_t steps_of(std::size_t i) const { return work_.steps ? work_.steps(i) : 1; }

  void finish(std::size_t i) {
    is_done_[i] = true;
    done_steps_ += steps_of(i);
    if (progress_) progress_({work_.command, done_steps_, n_steps_, work_.step_name});
  }

  /// False if the item turned out to be somebody else's.
  bool attempt(std::size_t i, const Lease* lease) {
    // It may have been answered, and its lease given back, between two looks.
    if (lease != nullptr) store_.refresh();
    require_store();
    if (state_of_group(i) != ItemState::to_do) return false;
    const std::vector<std::size_t> items = items_to_do(i);
    const std::stop_token stop = lease != nullptr ? lease->stop() : stop_;
    ProgressFn progress;
    if (progress_ && work_.steps) {
      progress = [&](const Progress& p) {
        progress_({work_.command, done_steps_ + p.done, n_steps_, work_.step_name});
      };
    }
    const Stopwatch watch;
    std::vector<Json> lines;
    try {
      lines = lines_of(items, lease, progress, stop);
    } catch (const Interrupted&) {
      if (stop_.stop_requested() || lease == nullptr) throw;
      return false;  // another worker has answered it
    }
    // Of two workers at one item the first says whether it can be done.
    const bool has_failed =
        std::ranges::any_of(lines, [](const Json& line) { return line.contains("failure"); });
    if (has_failed && lease != nullptr && lease->is_shared()) {
      is_left_alone_[i] = true;
      return false;
    }
    require_unchanged_inputs();  // the key says what they were
    seconds_ += watch.seconds();
    ++n_finished_;
    store_.add(lines);
    if (lease != nullptr) lease->answered();
    if (state_of_group(i) == ItemState::done) finish(i);
    return true;
  }

  /// The answers of these items, or why there is none; where they cannot be done together, each
  /// alone.
  std::vector<Json> lines_of(std::span<const std::size_t> items, const Lease* lease,
                             const ProgressFn& progress, const std::stop_token& stop) {
    std::string sentence;
    try {
      return work_.run(items, lease, progress, stop);
    } catch (const Interrupted&) {
      throw;
    } catch (const WriteRefused&) {  // the next item would fare no better
      throw;
    } catch (const Error& error) {
      if (on_failure_ == OnFailure::stop) throw;
      sentence = error.what();
    } catch (const std::bad_alloc&) {
      if (on_failure_ == OnFailure::stop) throw;
      sentence = "out of memory";
    }
    if (items.size() == 1) return failure_lines(items.front(), sentence);
    std::vector<Json> lines;
    for (const std::size_t& item : items) {
      std::vector<Json> own = lines_of({&item, 1}, lease, progress, stop);
      lines.insert(lines.end(), own.begin(), own.end());
    }
    return lines;
  }

  std::vector<Json> failure_lines(std::size_t item, const std::string& sentence) const {
    if (work_.fail) return work_.fail(item, sentence);
    return {{{"key", work_.keys[item]}, {"failure", sentence}}};
  }

  /// Nothing is free: takes what a dead worker had, or one that takes long, or waits.
  void wait(const std::vector<std::size_t>& held) {
    store_.refresh();
    const double mean = n_finished_ == 0 ? 0.0 : seconds_ / static_cast<double>(n_finished_);
    for (const std::size_t i : held) {
      if (state_of_group(i) != ItemState::to_do) return;
      const bool only_of_dead = is_left_alone_[i] || (work_.is_exclusive && work_.is_exclusive(i));
      int n_dead = 0;
      const int most_dead =
          on_failure_ == OnFailure::keep ? kMostTries : std::numeric_limits<int>::max();
      const double least = only_of_dead ? std::numeric_limits<double>::infinity() : mean;
      const auto lease = leases_->take_over(work_.keys[i], least, stop_, most_dead, n_dead);
      if (lease == nullptr && n_dead >= most_dead) {
        for (const std::size_t item : items_to_do(i))
          store_.add(failure_lines(item, fmt::format("it ended {} workers", n_dead)));
        finish(i);
        return;
      }
      if (lease != nullptr && attempt(i, lease.get())) return;
    }
    check();
    std::this_thread::sleep_for(kPause);
  }

  const Work& work_;
  Store& store_;
  OnFailure on_failure_;
  const ProgressFn& progress_;
  std::stop_token stop_;
  std::optional<Leases> leases_;
  std::vector<bool> is_done_;
  std::vector<bool> is_left_alone_;  // to who has it
  bool was_there_ = false;           // the store
  std::vector<std::size_t> order_;
  std::int64_t n_steps_ = 0;
  std::int64_t done_steps_ = 0;
  double seconds_ = 0.0;  // of items that were finished here
  std::size_t n_finished_ = 0;
};

}  // namespace

Json without_names(Json config) {
  constexpr std::pair<const char*, const char*> kNamed[] = {
      {"model", "model_hash"}, {"draft", "draft_hash"}, {"text", "text_checksum"}};
  for (const auto& [name, hash] : kNamed)
    if (config.contains(hash)) config.erase(name);
  constexpr std::pair<const char*, const char*> kLists[] = {{"traces", "name"},
                                                            {"more_texts", "text"}};
  for (const auto& [list, name] : kLists) {
    if (!config.contains(list)) continue;
    for (Json& one : config[list]) one.erase(name);
  }
  return config;
}

std::string Work::hash(std::initializer_list<const char*> without, const Json& with) const {
  Work part{.command = command, .config = config};
  for (const char* field : without) part.config.erase(field);
  part.config.update(with);
  return part.hash();
}

std::vector<std::size_t> Work::group_of(std::size_t first) const {
  std::vector<std::size_t> items = {first};
  for (std::size_t i = first + 1; i < groups.size() && groups[i] == first; ++i) items.push_back(i);
  return items;
}

std::string Work::hash() const {
  return config_checksum(
      {{"command", command}, {"code", code_version()}, {"config", without_names(config)}});
}

void name_items(Work& work, std::size_t n) {
  const std::string hash = work.hash();
  work.keys.clear();
  for (std::size_t i = 0; i < n; ++i) work.keys.push_back(fmt::format("{}-{:06}", hash, i));
}

std::vector<Json> answer_of(const std::string& key, Json answer) {
  return {{{"key", key}, {"answer", std::move(answer)}}};
}

Json answer_in(const Store& store, const std::string& key) {
  const std::string line = store.knows(key) ? store.line(key) : "";
  if (line.empty())
    throw FormatError("{}: expected the answer of item {}, found none", store.folder().string(),
                      key);
  return parse_ordered_json(line, store.folder().string()).at("answer");
}

ItemState state_of(const Work& work, std::size_t item, const Store& store) {
  if (work.state) return work.state(item, store);
  return store.find(work.keys[item]) == nullptr ? ItemState::to_do : ItemState::done;
}

void run_items(const Work& work, Store& store, OnFailure on_failure, const ProgressFn& progress,
               const std::stop_token& stop) {
  ItemLoop(work, store, on_failure, progress, stop).run();
  store.sync();
}

std::vector<FailedItem> failed_items(const Work& work, const Store& store) {
  std::vector<FailedItem> failed;
  for (std::size_t i = 0; i < work.keys.size(); ++i) {
    const StoredAnswer* const answer = store.find(work.keys[i]);
    if (answer != nullptr && !answer->failure.empty())
      failed.push_back({i, work.keys[i], answer->failure});
  }
  return failed;
}

Store all_failed(const Work& work) {
  Store store;
  for (const std::string& key : work.keys) {
    const Json line = {{"key", key}, {"failure", "not asked"}};
    store.add(std::vector{line});
  }
  return store;
}

std::vector<std::string> lacking_sentences(const Work& work, const Store& store) {
  return mapped<std::string>(failed_items(work, store), [](const FailedItem& failed) {
    return fmt::format("item {} failed, its rows are empty: {}", failed.item, failed.sentence);
  });
}

}  // namespace kvscope
