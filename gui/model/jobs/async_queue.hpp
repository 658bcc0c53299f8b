// Many values of one kind, computed one after another and shown as they come: a method each, or a
// layer each.
//
//   const auto& view = queue_.ask(bench, items);   // in every frame
//   for (std::size_t i = 0; i < items.size(); ++i)
//     if (view.values[i]) ...                      // this item's, never that of another key
//
// At most one job waits or runs, so that other panels' work comes in between. Each value is kept in
// the cache by its own key: an item that comes and goes is not computed again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gui/model/jobs/async_value.hpp"

namespace kvscope::gui {

template <class T>
struct QueueItem {
  std::string key;
  JobRequest request;
  std::function<T(JobContext&)> compute;  // runs on another thread: captures by value
};

template <class T>
struct QueueView {
  std::vector<std::shared_ptr<const T>> values;  // by item; null = not there (yet)
  std::vector<std::string> errors;               // by item; empty = none
  std::size_t n_known = 0;
  std::size_t n_over = 0;  // known, failed or cancelled
  JobStatus status;        // of what runs; else of the first that failed or was cancelled
  bool is_complete() const { return n_known == values.size(); }
  bool is_busy() const { return n_over < values.size(); }
  /// Which values are there, for keys of what is made of them.
  std::string known_mask() const {
    if (is_complete()) return "all";
    std::string mask;
    for (const auto& value : values) mask += value ? '1' : '0';
    return mask;
  }
};

/// T must have `std::size_t bytes() const`. Used from one thread.
template <class T>
class AsyncQueue {
 public:
  /// Values of the items that are known; starts the first one that is not, if nothing runs. Items
  /// that are no longer asked for are forgotten, and their job is cancelled.
  QueueView<T> ask(Workbench bench, const std::vector<QueueItem<T>>& items) {
    forget_others(items);
    const QueueItem<T>* next = next_of(bench, items);
    AsyncView<T> running;
    while (next != nullptr && !is_cancelled_) {
      running = slot_.ask(bench, next->key, next->request, next->compute);
      if (running.is_pending()) break;
      if (running.fresh) {
        known_[next->key] = running.value;
      } else if (running.failed()) {
        over_[next->key] = running.status;
      } else {
        cancel();
      }
      if (!is_cancelled_) next = next_of(bench, items);
    }
    QueueView<T> view;
    for (const QueueItem<T>& item : items) {
      const auto value = known_.find(item.key);
      const auto failure = over_.find(item.key);
      const bool is_known = value != known_.end();
      const bool has_failed = !is_known && failure != over_.end();
      view.n_known += is_known;
      view.n_over += is_known || has_failed;
      view.errors.push_back(has_failed ? failure->second.error : std::string());
      if (has_failed && view.status.title.empty()) view.status = failure->second;
      view.values.push_back(is_known ? value->second : nullptr);
    }
    if (next == nullptr) return view;
    view.status = running.status;
    if (is_cancelled_) {  // what waits is over too, until retry()
      view.n_over = items.size();
      view.status.title = next->request.title;
      view.status.state = JobState::cancelled;
    }
    return view;
  }

  /// Stops what runs and starts nothing more before retry().
  void cancel() {
    slot_.retry();
    is_cancelled_ = true;
  }
  /// Computes again what failed or was cancelled.
  void retry() {
    slot_.retry();
    over_.clear();
    is_cancelled_ = false;
  }
  /// Forgets everything.
  void clear() {
    retry();
    slot_.clear();
    known_.clear();
  }

 private:
  /// What runs already, else the first that is neither known nor failed; null if there is none.
  const QueueItem<T>* next_of(Workbench bench, const std::vector<QueueItem<T>>& items) {
    const QueueItem<T>* first = nullptr;
    for (const QueueItem<T>& item : items) {
      if (known_.contains(item.key)) continue;
      if (auto value = bench.cache.find<T>(item.key)) {
        known_.emplace(item.key, std::move(value));
      } else if (!over_.contains(item.key)) {
        if (item.key == slot_.key()) return &item;
        if (first == nullptr) first = &item;
      }
    }
    return first;
  }

  void forget_others(const std::vector<QueueItem<T>>& items) {
    std::set<std::string_view> wanted;
    for (const QueueItem<T>& item : items) wanted.insert(item.key);
    const auto is_other = [&](const auto& entry) { return !wanted.contains(entry.first); };
    std::erase_if(known_, is_other);
    std::erase_if(over_, is_other);
    if (slot_.key().empty() || wanted.contains(slot_.key())) return;
    slot_.retry();  // another question
    is_cancelled_ = false;
  }

  std::map<std::string, std::shared_ptr<const T>, std::less<>> known_;  // of the items asked last
  std::map<std::string, JobStatus, std::less<>> over_;                  // failed
  AsyncValue<T> slot_;                                                  // of what runs
  bool is_cancelled_ = false;
};

}  // namespace kvscope::gui
