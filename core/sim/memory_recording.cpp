#include "core/sim/memory_recording.hpp"

#include <algorithm>

namespace kvscope {

namespace {

/// Copies rows [heads, n, d] to positions from `first` on.
void copy_positions(TensorView<const float> rows, Index first, TensorView<float> all) {
  for (Index head = 0; head < rows.dim(0); ++head) {
    for (Index i = 0; i < rows.dim(1); ++i) {
      const auto row = rows.sub(head).row(i);
      std::copy(row.begin(), row.end(), all.sub(head).row(first + i).begin());
    }
  }
}

class MemoryObserver final : public Observer {
 public:
  explicit MemoryObserver(MemoryTrace& trace) : trace_(trace) {}
  bool wants(Index) const override { return true; }
  void on_attention(const AttentionEvent& event) override {
    copy_positions(event.q, event.pos_begin, trace_.q(event.layer));
    copy_positions(event.k, event.pos_begin, trace_.k(event.layer));
    copy_positions(event.v, event.pos_begin, trace_.v(event.layer));
  }

 private:
  MemoryTrace& trace_;
};

}  // namespace

MemoryTrace record_in_memory(const Transformer& model, std::span<const TokenId> text, Index chunk,
                             ThreadPool& pool) {
  const ModelConfig& config = model.config();
  const auto n_tokens = static_cast<Index>(text.size());
  TraceInfo info =
      make_trace_info(config.n_layers, config.n_q, config.n_kv, config.d_head, n_tokens, chunk);
  info.score_scale = config.score_scale();
  info.score_cap = static_cast<float>(config.plan.score_softcap);
  info.layer_shapes = config.layer_shapes;
  info.window = config.window;
  info.sink_logits = model.sink_logits();
  MemoryTrace trace(info);
  trace.set_tokens({text.begin(), text.end()});
  MemoryObserver observer(trace);
  ForwardOptions options;
  options.observer = &observer;
  const std::unique_ptr<KvStore> cache = model.make_store(n_tokens);
  for (Index at = 0; at < n_tokens; at += chunk) {
    const Index n = std::min(chunk, n_tokens - at);
    model.forward(text.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)), *cache,
                  pool, options);
  }
  return trace;
}

}  // namespace kvscope
