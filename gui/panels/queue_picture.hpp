// Many values of one kind, computed one after another, and a picture of those that are there, as
// recall curves are: it grows while the rest is still to come.
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
#include <vector>

#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

template <class T>
struct QueueItem {
  std::string key;
  JobRequest request;
  std::function<T(JobContext&)> compute;  // runs on another thread: captures by value
};

/// T has bytes(). Picture has a figure (without panels: there is nothing to see), a sentence (why)
/// and bytes(). Used from one thread.
template <class T, class Picture>
class QueuePicture {
 public:
  using Work = std::function<Picture(JobContext&)>;

  std::vector<QueueItem<T>> items;  // what to compute

  /// `question`: everything that is asked; `variant`: what else decides the picture. make(values)
  /// gives the work that draws these values of the items, null where one is to come. Says how far
  /// it is, or why there is nothing; true if there is a picture.
  template <class Make>
  bool update(const PanelContext& context, const std::string& title, const std::string& question,
              const std::string& variant, Make make) {
    const Workbench bench = context.session.bench();
    forget_others();
    JobStatus status = compute_next(bench);
    std::vector<std::shared_ptr<const T>> values;
    std::string which;
    for (const QueueItem<T>& item : items) {
      const auto value = known_.find(item.key);
      values.push_back(value == known_.end() ? nullptr : value->second);
      which += values.back() ? '1' : '0';
    }
    const bool computes = !is_cancelled_ && known_.size() + failed_.size() < items.size();
    const bool is_any = !known_.empty() || items.empty();
    const std::string wanted = is_any ? fmt::format("{}/{}/{}", question, which, variant) : key_;
    // A new one is begun when values come or the question changes, but never so often that none is
    // finished.
    if (wanted != key_ && (question != question_ || is_over_)) {
      key_ = wanted;
      question_ = question;
      work_ = make(values);
    }
    is_busy_ = computes;
    if (!key_.empty()) {
      const auto made = drawing_.ask(bench, key_, {title, Lane::quick, /*urgent=*/true}, work_);
      is_over_ = !made.is_pending();
      is_busy_ = is_busy_ || !is_over_ || (wanted != key_ && !made.failed());
      picture_ = made.value;
    }
    const bool has_picture = picture_ && !picture_->figure.panels.empty();
    const bool is_said =
        known_.size() < items.size() && (computes || has_picture || known_.empty());
    if (computes && items.size() > 1)
      status.title += fmt::format(" ({} of {})", known_.size() + 1, items.size());
    if (is_said) report_job(context, *this, status, has_picture, /*fresh=*/false);
    if (!has_picture && !is_said && picture_)
      empty_place(context, "Nothing to compare", picture_->sentence);
    return has_picture;
  }
  /// Stops what runs and starts nothing more before retry().
  void cancel() {
    running_.retry();
    is_cancelled_ = true;
  }
  /// Computes again what failed or was cancelled.
  void retry() {
    running_.retry();
    failed_.clear();
    is_cancelled_ = false;
  }
  void forget() {
    items.clear();
    retry();
    running_.clear();
    known_.clear();
    drawing_.clear();
    picture_.reset();
    key_.clear();
    question_.clear();
    work_ = nullptr;
    is_over_ = true;
  }

  bool is_busy() const { return is_busy_; }
  /// The last one that was made; null: none yet.
  const std::shared_ptr<const Picture>& get() const { return picture_; }
  const Picture* operator->() const { return picture_.get(); }
  const Picture& operator*() const { return *picture_; }

 private:
  /// Items that are no longer asked for are forgotten, and their job is cancelled.
  void forget_others() {
    std::set<std::string_view> wanted;
    for (const QueueItem<T>& item : items) wanted.insert(item.key);
    const auto is_other = [&](const auto& entry) { return !wanted.contains(entry.first); };
    std::erase_if(known_, is_other);
    std::erase_if(failed_, is_other);
    if (running_.key().empty() || wanted.contains(running_.key())) return;
    running_.retry();  // another question
    is_cancelled_ = false;
  }

  /// What runs already, else the first that is neither known nor failed; null if there is none.
  const QueueItem<T>* next_of(Workbench bench) {
    const QueueItem<T>* first = nullptr;
    for (const QueueItem<T>& item : items) {
      if (known_.contains(item.key)) continue;
      if (auto value = bench.cache.find<T>(item.key)) {
        known_.emplace(item.key, std::move(value));
      } else if (!failed_.contains(item.key)) {
        if (item.key == running_.key()) return &item;
        if (first == nullptr) first = &item;
      }
    }
    return first;
  }

  /// Starts the next item, if nothing runs. The status of what runs or was cancelled, else of the
  /// first that failed.
  JobStatus compute_next(Workbench bench) {
    const QueueItem<T>* next = next_of(bench);
    while (next != nullptr && !is_cancelled_) {
      const AsyncView<T> view = running_.ask(bench, next->key, next->request, next->compute);
      if (view.is_pending()) return view.status;
      if (view.fresh) {
        known_[next->key] = view.value;
      } else if (view.failed()) {
        failed_[next->key] = view.status;
      } else {
        cancel();
      }
      if (!is_cancelled_) next = next_of(bench);
    }
    if (next != nullptr) return {.title = next->request.title, .state = JobState::cancelled};
    for (const QueueItem<T>& item : items) {
      if (const auto found = failed_.find(item.key); found != failed_.end()) return found->second;
    }
    return {};
  }

  std::map<std::string, std::shared_ptr<const T>, std::less<>> known_;  // of the items asked last
  std::map<std::string, JobStatus, std::less<>> failed_;
  AsyncValue<T> running_;
  bool is_cancelled_ = false;
  AsyncValue<Picture> drawing_;
  std::shared_ptr<const Picture> picture_;
  std::string key_;
  std::string question_;
  Work work_;
  bool is_over_ = true;  // no picture is being made
  bool is_busy_ = false;
};

}  // namespace kvscope::gui
