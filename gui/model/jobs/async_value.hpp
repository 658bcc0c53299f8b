// A place for one computed value, asked for anew in every frame: the way panels get what they show.
//
//   const auto view =
//       value_.ask(bench, key, {"Geometry of layer 3", Lane::heavy}, [=](JobContext& job) {
//         return compute(*document, options, job);  // captures by value: runs on another thread
//       });
//   if (view.value) draw(*view.value);            // of this key, or of the one before
//   if (!view.fresh) show_progress(view.status);  // still computing, or failed with a sentence
//
// Asking with another key cancels what runs and starts the new one; the last value stays to be
// shown meanwhile. Asking with a key that the cache holds is instant.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "gui/model/jobs/cache.hpp"
#include "gui/model/jobs/jobs.hpp"

namespace kvscope::gui {

/// What every computation needs: threads, and the memory of what was computed before.
struct Workbench {
  JobRunner& jobs;
  Cache& cache;
};

/// What a job is called and where it runs.
struct JobRequest {
  std::string title;
  Lane lane = Lane::heavy;
  bool urgent = false;
};

template <class T>
struct AsyncView {
  std::shared_ptr<const T> value;  // null: nothing was ever computed
  bool fresh = false;              // the value belongs to the key asked for
  JobStatus status;                // of the job that makes the value of this key
  bool failed() const { return status.state == JobState::failed; }
  /// A fresh value will come: its job waits, runs, or has ended and is about to be delivered.
  bool is_pending() const { return !fresh && !failed() && status.state != JobState::cancelled; }
};

/// The work of a job that makes the value of a key and keeps it, unless somebody else's job, which
/// was asked before, did so meanwhile.
template <class T, class Compute>
auto kept_work(Cache& cache, std::string key, Compute compute) {
  return [&cache, key = std::move(key), compute = std::move(compute)](JobContext& job) -> std::any {
    std::shared_ptr<const T> value = cache.find<T>(key);
    if (!value) {
      value = std::make_shared<T>(compute(job));
      cache.put<T>(key, value, value->bytes());
    }
    return value;
  };
}

/// T must have `std::size_t bytes() const`: what it costs to keep.
template <class T>
class AsyncValue {
 public:
  AsyncValue() = default;
  ~AsyncValue() { cancel(); }
  AsyncValue(const AsyncValue&) = delete;
  AsyncValue& operator=(const AsyncValue&) = delete;

  template <class Compute>
  AsyncView<T> ask(Workbench bench, const std::string& key, const JobRequest& request,
                   Compute compute) {
    if (key != key_) start(bench, key, request, std::move(compute));
    AsyncView<T> view;
    view.value = state_->value;
    view.fresh = state_->value != nullptr && state_->value_key == key_;
    view.status = job_.status();
    return view;
  }

  /// The same of a value that takes long: unless it is known, a rough one is made and shown before.
  template <class Compute>
  AsyncView<T> ask(Workbench bench, const std::string& key, const JobRequest& request,
                   Compute compute, const std::string& rough_key, Compute rough) {
    const bool is_asked = key_ == key || rough_of_ == key;
    if (!is_asked && bench.cache.find<T>(key) == nullptr) {
      AsyncView<T> view = ask(bench, rough_key, request, std::move(rough));
      if (!view.fresh) return view;
      rough_of_ = key;
    }
    return ask(bench, key, request, std::move(compute));
  }

  /// What was asked for last; empty: nothing, or what was forgotten.
  const std::string& key() const { return key_; }
  /// Forgets the key, so that the next ask computes again (after a failure, say, or a cancel).
  void retry() {
    cancel();
    key_.clear();
  }
  /// Stops the running job; the last value stays. The next ask with the same key does not start it
  /// again before retry().
  void cancel() { job_.cancel(); }
  /// Forgets everything.
  void clear() {
    retry();
    state_ = std::make_shared<State>();
    job_ = {};
    rough_of_.clear();
  }

 private:
  struct State {
    std::shared_ptr<const T> value;
    std::string value_key;
  };

  template <class Compute>
  void start(Workbench bench, const std::string& key, const JobRequest& request, Compute compute) {
    job_.cancel();
    job_ = {};
    key_ = key;
    if (auto known = bench.cache.find<T>(key)) {
      state_->value = std::move(known);
      state_->value_key = key;
      return;
    }
    // The delivery may outlive this object, if its panel goes first: it holds the state only.
    std::weak_ptr<State> state = state_;
    job_ = bench.jobs.start(
        request.title, request.lane, kept_work<T>(bench.cache, key, std::move(compute)),
        [state, key](std::any result) {
          if (const auto alive = state.lock()) {
            alive->value = std::any_cast<std::shared_ptr<const T>>(std::move(result));
            alive->value_key = key;
          }
        },
        request.urgent);
  }

  std::string key_;
  std::string rough_of_;  // the key whose rough value is or was here
  Job job_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace kvscope::gui
