// Watches a forward call and hands the recorded heads and rows of every layer to a TraceSink.
#pragma once

#include <vector>

#include "core/base/parallel.hpp"
#include "core/model/observer.hpp"
#include "core/trace/sink.hpp"

namespace kvscope {

/// Copies as little as it can: parts whose heads lie side by side are passed on as views.
class RecordingObserver final : public Observer {
 public:
  /// All three must outlive the observer. `pool` has to be idle during callbacks.
  RecordingObserver(const TraceInfo& info, TraceSink& sink, ThreadPool& pool)
      : info_(info), sink_(sink), pool_(pool) {}

  bool wants(Index layer) const override { return info_.has_layer(layer); }
  void on_attention(const AttentionEvent& event) override;
  void on_routing(const RoutingEvent& event) override;
  void on_logits(Index pos_begin, TensorView<const float> logits) override;

 private:
  /// Tokens of the call inside info.rows, relative to the call's first.
  TokenRange recorded_rows(Index pos_begin, Index n_tok) const;
  void write_attention_rows(const AttentionEvent& event, TokenRange rows);

  const TraceInfo& info_;
  TraceSink& sink_;
  ThreadPool& pool_;
};

}  // namespace kvscope
