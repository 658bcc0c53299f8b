// A picture of what a queue has computed so far, as recall curves and maps of heads are: it grows
// while the rest is still to come.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

/// Picture has a figure (without panels: there is nothing to see), a sentence (why) and bytes().
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
    const auto view = queue_.ask(bench, items);
    const bool is_any = view.n_known > 0 || items.empty();
    const std::string wanted =
        is_any ? fmt::format("{}/{}/{}", question, view.known_mask(), variant) : key_;
    // A new one is begun when values come or the question changes, but never so often that none is
    // finished.
    if (wanted != key_ && (question != question_ || is_over_)) {
      key_ = wanted;
      question_ = question;
      work_ = make(view.values);
    }
    is_busy_ = view.is_busy();
    if (!key_.empty()) {
      const auto made = slot_.ask(bench, key_, {title, Lane::quick, /*urgent=*/true}, work_);
      is_over_ = !made.is_pending();
      is_busy_ = is_busy_ || !is_over_ || (wanted != key_ && !made.failed());
      picture_ = made.value;
    }
    const bool has_picture = picture_ && !picture_->figure.panels.empty();
    const bool is_said = queue_place(context, queue_, view, has_picture);
    if (!has_picture && !is_said && picture_)
      empty_place(context, "Nothing to compare", picture_->sentence);
    return has_picture;
  }
  void forget() {
    items.clear();
    queue_.clear();
    slot_.clear();
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
  AsyncQueue<T> queue_;
  AsyncValue<Picture> slot_;
  std::shared_ptr<const Picture> picture_;
  std::string key_;
  std::string question_;
  Work work_;
  bool is_over_ = true;  // no picture is being made
  bool is_busy_ = false;
};

}  // namespace kvscope::gui
