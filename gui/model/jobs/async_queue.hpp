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
  AsyncQueue() = default;
  ~AsyncQueue() { job_.cancel(); }
  AsyncQueue(const AsyncQueue&) = delete;
  AsyncQueue& operator=(const AsyncQueue&) = delete;

  /// Values of the items that are known; starts the first one that is not, if nothing runs. Items
  /// that are no longer asked for are forgotten, and their job is cancelled.
  QueueView<T> ask(Workbench bench, const std::vector<QueueItem<T>>& items) {
    forget_others(items);
    file_finished();
    QueueView<T> view;
    const QueueItem<T>* next = nullptr;
    for (const QueueItem<T>& item : items) {
      std::shared_ptr<const T> value = find(bench, item.key);
      const auto failure = value ? over_.end() : over_.find(item.key);
      const bool is_over = value != nullptr || failure != over_.end();
      view.n_known += value != nullptr;
      view.n_over += is_over;
      view.errors.push_back(failure == over_.end() ? std::string() : failure->second.error);
      if (failure != over_.end() && view.status.title.empty()) view.status = failure->second;
      if (!is_over && next == nullptr) next = &item;
      view.values.push_back(std::move(value));
    }
    if (next == nullptr) return view;
    if (is_cancelled_) {  // what waits is over too, until retry()
      view.n_over = items.size();
      view.status.title = next->request.title;
      view.status.state = JobState::cancelled;
      return view;
    }
    if (running_.empty()) start(bench, *next);
    view.status = job_.status();
    return view;
  }

  /// Stops what runs and starts nothing more before retry().
  void cancel() {
    job_.cancel();
    running_.clear();
    is_cancelled_ = true;
  }
  /// Computes again what failed or was cancelled.
  void retry() {
    over_.clear();
    is_cancelled_ = false;
  }
  /// Forgets everything.
  void clear() {
    cancel();
    retry();
    job_ = {};
    known_ = std::make_shared<Known>();
  }

 private:
  using Known = std::map<std::string, std::shared_ptr<const T>, std::less<>>;

  std::shared_ptr<const T> find(Workbench bench, const std::string& key) {
    if (const auto it = known_->find(key); it != known_->end()) return it->second;
    auto value = bench.cache.find<T>(key);
    if (value) known_->emplace(key, value);
    return value;
  }

  void forget_others(const std::vector<QueueItem<T>>& items) {
    std::map<std::string_view, bool> wanted;
    for (const QueueItem<T>& item : items) wanted[item.key] = true;
    const auto is_other = [&](const auto& entry) { return !wanted.contains(entry.first); };
    std::erase_if(*known_, is_other);
    std::erase_if(over_, is_other);
    if (running_.empty() || wanted.contains(running_)) return;
    job_.cancel();
    running_.clear();
    is_cancelled_ = false;  // another question
  }

  void file_finished() {
    if (running_.empty()) return;
    const JobStatus status = job_.status();
    const bool has_value = known_->contains(running_);
    if (!has_value && !status.is_over()) return;
    if (!has_value && status.state == JobState::done) return;  // delivered in the next poll
    if (!has_value && status.state == JobState::failed) over_[running_] = status;
    if (!has_value && status.state == JobState::cancelled) is_cancelled_ = true;
    running_.clear();
  }

  void start(Workbench bench, const QueueItem<T>& item) {
    running_ = item.key;
    // The delivery may outlive this queue: it holds the values weakly, not the queue.
    std::weak_ptr<Known> known = known_;
    job_ = bench.jobs.start(
        item.request.title, item.request.lane, kept_work<T>(bench.cache, item.key, item.compute),
        [known, key = item.key](std::any result) {
          if (const auto alive = known.lock())
            (*alive)[key] = std::any_cast<std::shared_ptr<const T>>(std::move(result));
        },
        item.request.urgent);
  }

  std::shared_ptr<Known> known_ = std::make_shared<Known>();  // of the items asked for last
  std::map<std::string, JobStatus, std::less<>> over_;        // failed
  std::string running_;                                       // key of job_, or empty
  Job job_;
  bool is_cancelled_ = false;
};

}  // namespace kvscope::gui
