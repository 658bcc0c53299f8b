// Watches a forward call and hands the recorded heads and rows of every layer to a TraceReceiver.
#pragma once

#include <optional>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/model/observer.hpp"
#include "core/trace/receiver.hpp"
#include "traces/pre_rotary.hpp"
#include "traces/score_rounding.hpp"

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
        rounding_(info, info.dtype),
        measures_(!info.moved_scores.empty() && !stores_what_runs(info)) {}

  bool wants(Index layer) const override { return info_.has_layer(layer); }
  void on_attention(const AttentionEvent& event) override;
  std::optional<DType> rows_dtype(Index layer) const override;
  void on_rows(const RowsEvent& event) override;
  void on_routing(const RoutingEvent& event) override;
  void on_logits(Index pos_begin, TensorView<const float> logits) override;

  /// TraceInfo::moved_scores, of the calls so far.
  const std::vector<float>& moved_scores() const {
    return info_.moved_scores.empty() ? info_.moved_scores : rounding_.by_layer();
  }

 private:
  /// Tokens of the call inside info.rows, relative to the call's first.
  TokenRange recorded_rows(Index pos_begin, Index n_tok) const;
  void write_attention_rows(const AttentionEvent& event, TokenRange rows);
  /// The model computes with the 16 bits that are stored.
  static bool stores_what_runs(const TraceInfo& info) {
    return enum_name(info.dtype) == info.kv_dtype;
  }

  const TraceInfo& info_;
  TraceReceiver& receiver_;
  ThreadPool& pool_;
  const PreRotary* pre_rotary_;
  ScoreRounding rounding_;
  bool measures_;
};

}  // namespace kvscope
