// What runs at once in a simulation: bounds, runs that had no memory beside others, and a device
// that holds fewer sequences than it says.
#include "analysis/simulate/side_by_side.hpp"

#include <atomic>
#include <mutex>
#include <thread>

#include "analysis/simulate/perplexity.hpp"
#include "core/base/data_dir.hpp"
#include "core/base/device_memory.hpp"
#include "tests/analysis/kit.hpp"

namespace kvscope::test::side_by_side_test {

/// Counts how many are inside, and how many were at most.
class Room {
 public:
  void enter() {
    const int n = ++n_;
    int most = most_;
    while (n > most && !most_.compare_exchange_weak(most, n)) {
    }
  }
  void leave() { --n_; }
  int now() const { return n_; }
  int most() const { return most_; }

 private:
  std::atomic<int> n_{0}, most_{0};
};

/// n_cases cases of n_pairs pairs each.
std::vector<CaseWork> grid(std::size_t n_cases, std::size_t n_pairs) {
  std::vector<CaseWork> cases(n_cases);
  for (std::size_t c = 0; c < n_cases; ++c) {
    cases[c].index = 10 + c;
    for (std::size_t p = 0; p < n_pairs; ++p) cases[c].pairs.push_back(2 * p + 1);
  }
  return cases;
}

using Runs = std::vector<std::pair<std::size_t, std::size_t>>;

/// Runs all with `body`, and says what was handed over, in order.
template <class Body>
Runs run_all(std::span<const CaseWork> cases, std::size_t n_sequences, int n_threads, Body body) {
  ThreadPool pool(n_threads);
  std::mutex mutex;
  Runs seen;
  const auto open = [&](std::size_t c, ThreadPool&) -> OpenCase {
    return [&body, c](std::size_t p, ThreadPool& own) {
      body(c, p, own);
      return UnitResult{{static_cast<double>(100 * c + p)}, {}};
    };
  };
  const auto done = [&](std::size_t c, std::size_t p, const UnitResult& unit) {
    const std::lock_guard lock(mutex);
    CHECK(unit.values == std::vector{static_cast<double>(100 * c + p)});
    seen.emplace_back(c, p);
  };
  run_cases(cases, n_sequences, pool, {open, done});
  return seen;
}

TEST_CASE("every pair of every case runs once, with no more sequences and threads than there are") {
  const std::size_t n_sequences = GENERATE(1, 2, 3, 5, 1000);
  const int n_threads = GENERATE(1, 4);
  const std::vector<CaseWork> cases = grid(5, 3);
  std::atomic<int> n_at_work{0}, most_at_work{0};
  Room room;
  Runs seen = run_all(cases, n_sequences, n_threads, [&](auto, auto, ThreadPool& own) {
    const int n = n_at_work += own.n_threads();
    for (int most = most_at_work; n > most && !most_at_work.compare_exchange_weak(most, n);) {
    }
    room.enter();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    room.leave();
    n_at_work -= own.n_threads();
  });
  std::ranges::sort(seen);
  Runs expected;
  for (const CaseWork& work : cases)
    for (const std::size_t p : work.pairs) expected.emplace_back(work.index, p);
  CHECK(seen == expected);
  CHECK(most_at_work <= n_threads);
  // a case counts beside its runs
  CHECK(room.most() <= static_cast<int>(std::max<std::size_t>(n_sequences, 2)) - 1);
}

TEST_CASE("a slow pair keeps no thread from the next cases") {
  std::atomic<int> n_waiting{0}, n_threads{0};
  std::atomic<bool> is_late{false};
  run_all(grid(4, 2), 1000, 4, [&](auto, std::size_t p, ThreadPool& own) {
    if (p != 1) return;
    n_threads += own.n_threads();
    ++n_waiting;  // one of each case: they wait for each other
    const auto begin = std::chrono::steady_clock::now();
    while (n_waiting < 4 && !is_late) {
      is_late = std::chrono::steady_clock::now() - begin > std::chrono::seconds(60);
      std::this_thread::yield();
    }
  });
  CHECK_FALSE(is_late);
  CHECK(n_threads == 4);
}

TEST_CASE("fewer runs than threads share them") {
  std::mutex mutex;
  std::vector<int> threads;
  const auto note = [&](auto, auto, ThreadPool& own) {
    const std::lock_guard lock(mutex);
    threads.push_back(own.n_threads());
  };
  run_all(grid(1, 1), 1000, 4, note);
  CHECK(threads == std::vector{4});
  threads.clear();
  run_all(grid(3, 2), /*n_sequences=*/1, 4, note);  // what measures seconds
  CHECK(threads == std::vector(6, 4));
}

TEST_CASE("what has no memory beside others is tried again with fewer") {
  const int n_threads = GENERATE(1, 4);
  const std::vector<CaseWork> cases = grid(3, 4);
  Room room;
  Runs seen = run_all(cases, 1000, n_threads, [&](auto, auto, ThreadPool&) {
    room.enter();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool is_crowded = room.now() > 1;
    room.leave();
    if (is_crowded) throw DeviceMemoryError("no room");
  });
  CHECK(seen.size() == 12);
  std::ranges::sort(seen);
  CHECK(std::unique(seen.begin(), seen.end()) == seen.end());
  CHECK_THROWS_AS(run_all(cases, 1000, n_threads,
                          [](auto, auto, ThreadPool&) { throw DeviceMemoryError("none"); }),
                  DeviceMemoryError);
}

TEST_CASE("what had no memory beside a run that has ended since is tried again") {
  std::atomic<int> n_tries{0};
  std::atomic<bool> is_over{false};
  const Runs seen = run_all(grid(1, 2), 1000, 2, [&](auto, std::size_t p, ThreadPool&) {
    const auto until = [](const auto& holds) {
      while (!holds()) std::this_thread::yield();
    };
    if (p == 1) {
      until([&] { return n_tries > 0; });
      is_over = true;
    } else if (n_tries++ == 0) {
      until([&] { return is_over.load(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the other thread puts it away
      throw DeviceMemoryError("no room beside the other");
    }
  });
  CHECK(seen.size() == 2);
  CHECK(n_tries == 2);
}

TEST_CASE("the failure that is told is the first of all, whichever thread is quicker") {
  const int n_threads = GENERATE(1, 4);
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> n_begun{0};
    const auto fail_later = [&](std::size_t c, std::size_t p, ThreadPool&) {
      ++n_begun;
      if (c == 11 && p == 3) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (c > 11 || (c == 11 && p >= 3))
        throw ConfigError(std::to_string(c) + " " + std::to_string(p));
    };
    CHECK_THROWS_WITH(run_all(grid(40, 3), 1000, n_threads, fail_later), "11 3");
    CHECK(n_begun < 40);
  }
}

TEST_CASE("nothing begins when results cannot be handed over") {
  ThreadPool pool(2);
  std::atomic<int> n_begun{0};
  const auto open = [&](std::size_t, ThreadPool&) -> OpenCase {
    return [&](std::size_t, ThreadPool&) {
      ++n_begun;
      return UnitResult{};
    };
  };
  const auto done = [](std::size_t, std::size_t, const UnitResult&) { throw IoError("full"); };
  CHECK_THROWS_AS(run_cases(grid(50, 2), 1000, pool, {open, done}), IoError);
  CHECK(n_begun <= 4);
}

/// Stores of another backend, of which only so many exist at a time.
struct CountedStore final : KvStore {
  CountedStore(std::unique_ptr<KvStore> of, std::atomic<int>& count)
      : inner(std::move(of)), n_stores(count) {}
  ~CountedStore() override { --n_stores; }
  Index capacity() const override { return inner->capacity(); }
  Index n_tokens() const override { return inner->n_tokens(); }
  Index n_layers() const override { return inner->n_layers(); }
  DType dtype() const override { return inner->dtype(); }
  void advance(Index n) override { inner->advance(n); }
  void truncate(Index n) override { inner->truncate(n); }
  void copy_from(const KvStore& other) override {
    inner->copy_from(*dynamic_cast<const CountedStore&>(other).inner);
  }
  TensorView<const float> host_k(Index layer, Index begin, Index end) const override {
    return inner->host_k(layer, begin, end);
  }
  TensorView<const float> host_v(Index layer, Index begin, Index end) const override {
    return inner->host_v(layer, begin, end);
  }
  std::unique_ptr<KvStore> inner;
  std::atomic<int>& n_stores;
};

/// The CPU as a device with room for `most` stores, which takes itself for a larger one.
class SmallDevice final : public Backend {
 public:
  SmallDevice(std::unique_ptr<Backend> inner, int most) : inner_(std::move(inner)), most_(most) {}
  std::string_view name() const override { return "small"; }
  std::unique_ptr<KvStore> make_store(Index capacity) const override {
    if (++n_stores_ > most_) {
      --n_stores_;
      throw DeviceMemoryError("no room for another store");
    }
    return std::make_unique<CountedStore>(inner_->make_store(capacity), n_stores_);
  }
  std::unique_ptr<BackendCall> begin(Index n_tok, KvStore& store, ThreadPool& pool) const override {
    return inner_->begin(n_tok, *dynamic_cast<CountedStore&>(store).inner, pool);
  }
  std::optional<SequenceMemory> memory_of(Index, Index) const override {
    return SequenceMemory{1, 1000};
  }

 private:
  std::unique_ptr<Backend> inner_;
  int most_;
  mutable std::atomic<int> n_stores_{0};
};

std::vector<ColumnTable::Row> perplexity_rows(const BackendFactory& backend) {
  const Transformer verifier = Transformer::load(embedded_verifier(), backend);
  const Tokenizer tokenizer = Tokenizer::load(embedded_verifier());
  const std::vector<TokenId> text =
      tokenizer.encode(testing::read_file(embedded_text()).substr(0, 8000));
  ThreadPool pool(3);
  SimulationOptions options{.selectors = {"full", "streamingllm", "oracle-topk", "quest", "snapkv"},
                            .budgets = {Budget::parse("tokens=32")}};
  SimulationModels models{&verifier, nullptr, &tokenizer, "verifier", "", text, "book", {}};
  const SimulationSetup setup = set_up_simulation(models, options, Phase::decode, pool);
  PerplexityOptions of_task{.n_tokens = 48, .offset = 0, .windows = 3};
  const auto task = make_perplexity_task(setup, of_task);
  return run_simulation(*task, setup, std::nullopt, JournalMode::fresh, pool).table.rows;
}

TEST_CASE("a device that holds fewer runs than planned gives the same rows") {
  const auto expected = perplexity_rows(make_lane_backend);
  const auto on_device = [](int n_stores) -> BackendFactory {
    return [=](const ModelConfig& config, const ModelWeights& weights) {
      return std::make_unique<SmallDevice>(make_lane_backend(config, weights), n_stores);
    };
  };
  // of 2 stores one is the dense prefix
  for (const int n_stores : {2, 3, 4}) {
    INFO(n_stores);
    const auto found = perplexity_rows(on_device(n_stores));
    REQUIRE(found.size() == expected.size());
    for (std::size_t r = 0; r < found.size(); ++r) {
      CHECK(found[r].texts == expected[r].texts);
      for (std::size_t i = 0; i < found[r].numbers.size(); ++i) {
        const double a = expected[r].numbers[i];
        CHECK((found[r].numbers[i] == a || a != a));
      }
    }
  }
  CHECK_THROWS_AS(perplexity_rows(on_device(1)), DeviceMemoryError);
}

}  // namespace kvscope::test::side_by_side_test
