// Watches a forward call and hands the recorded heads and rows of every layer to a TraceReceiver.
#pragma once

#include <optional>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/model/observer.hpp"
#include "core/trace/receiver.hpp"
#include "traces/pre_rotary.hpp"

namespace kvscope {

/// Copies as little as it can: parts whose heads lie side by side are passed on as views.
class RecordingObserver final : public Observer {
 public:
  /// All must outlive the observer. `pool` has to be idle during callbacks. pre_rotary: needed
  /// where the info captures keys before their rotation.
  RecordingObserver(const TraceInfo& info, TraceReceiver& receiver, ThreadPool& pool,
                    const PreRotary* pre_rotary = nullptr)
      : info_(info),
        receiver_(receiver),
        pool_(pool),
        pre_rotary_(pre_rotary),
        moved_scores_(info.moved_scores) {}

  bool wants(Index layer) const override { return info_.has_layer(layer); }
  void on_attention(const AttentionEvent& event) override;
  std::optional<DType> rows_dtype(Index layer) const override;
  void on_rows(const RowsEvent& event) override;
  void on_routing(const RoutingEvent& event) override;
  void on_logits(Index pos_begin, TensorView<const float> logits) override;
  void on_call_end(Index pos_begin, Index n_tok) override { next_ = pos_begin + n_tok; }

  /// TraceInfo::moved_scores, of the calls so far.
  const std::vector<float>& moved_scores() const { return moved_scores_; }

 private:
  /// Tokens of the call inside info.rows, relative to the call's first.
  TokenRange recorded_rows(Index pos_begin, Index n_tok) const;
  void write_attention_rows(const AttentionEvent& event, TokenRange rows);
  /// Whether a call that begins there is one of those whose rounding is measured.
  bool is_measured(Index pos_begin) const;

  const TraceInfo& info_;
  TraceReceiver& receiver_;
  ThreadPool& pool_;
  const PreRotary* pre_rotary_;
  std::vector<float> moved_scores_;
  Index next_ = 0;  // where the next call begins
};

}  // namespace kvscope
