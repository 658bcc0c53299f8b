// A value that follows from what a method keeps: its lists, or what it loses. Asked for in every
// frame; the question is put together only when something changed.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <tuple>

#include "gui/model/tokens/token_losses.hpp"
#include "gui/model/tokens/token_reading.hpp"

namespace kvscope::gui {

template <class Value>
class MethodFeed {
 public:
  using Compute = Value (*)(const TraceSource&, const TraceSource*, const LossRequest&,
                            JobContext&);

  /// `what`: "Lists of", before the method's name in the title of the job.
  MethodFeed(std::string_view what, Compute compute) : what_(what), compute_(compute) {}

  /// `asked`: phase, heads and kind, in the session's selection. `is_new`: that has changed since
  /// the last call. Needs an open trace.
  void ask(const Session& session, const MethodSpec& method, const LossRequest& asked,
           bool is_new) {
    const auto scope_of = [](const LossRequest& of) {
      return std::tuple(of.phase, of.heads, of.kind);
    };
    if (is_new || !question_.trace || scope_of(asked) != scope_of(request())) {
      const auto before = question_.trace;
      question_ = method_question(session, method, asked);
      key_ = fmt::format("{}{}/{}", documents_key(*question_.trace, question_.draft.get()), what_,
                         request().key());
      if (before != question_.trace) value_.reset();
    }
    is_fresh_ = false;
    busy_ = false;
    problem_ = question_.obstacle;
    if (problem_.empty()) {
      const auto view =
          slot_.ask(session.bench(), key_, {fmt::format("{} {}", what_, method), Lane::heavy},
                    on_traces(question_.trace, question_.draft, request(), compute_));
      is_fresh_ = view.fresh;
      busy_ = view.is_pending();
      status_ = view.status;
      if (view.fresh) value_ = view.value;
      if (view.failed()) problem_ = view.status.error;
      if (!view.fresh && view.status.state == JobState::cancelled)
        problem_ = fmt::format("{}: cancelled; it is computed again with the next change", method);
    } else {
      slot_.retry();  // whatever still runs is not wanted
    }
    if (!problem_.empty()) value_.reset();
  }

  void forget() {
    if (!question_.trace) return;
    slot_.clear();
    question_ = {};
    value_.reset();
    problem_.clear();
    is_fresh_ = false;
    busy_ = false;
  }

  /// Of this trace, perhaps of the question before; null: there is none (yet).
  const std::shared_ptr<const Value>& value() const { return value_; }
  /// The same, but null while it is that of the question before.
  std::shared_ptr<const Value> fresh() const { return is_fresh_ ? value_ : nullptr; }
  /// Of fresh(), in the cache.
  const std::string& key() const { return key_; }
  const LossRequest& request() const { return question_.request; }
  /// A sentence: why there is none.
  const std::string& problem() const { return problem_; }
  bool is_busy() const { return busy_; }
  /// Of its job, while it is busy.
  const JobStatus& status() const { return status_; }
  void cancel() { slot_.cancel(); }
  void retry() { slot_.retry(); }

 private:
  std::string_view what_;
  Compute compute_;
  AsyncValue<Value> slot_;
  MethodQuestion question_;
  std::string key_;
  std::shared_ptr<const Value> value_;
  std::string problem_;
  JobStatus status_;
  bool is_fresh_ = false;
  bool busy_ = false;
};

}  // namespace kvscope::gui
