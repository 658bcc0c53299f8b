// What can be watched while the model runs, when, and with which shapes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/tensor/score_rule.hpp"
#include "core/tensor/tensor.hpp"
#include "core/tensor/typed_rows.hpp"

namespace kvscope {

/// What one attention layer saw in one forward call. Views are valid during the callback only.
/// n_tok: tokens of this call; their positions are [pos_begin, pos_begin + n_tok).
struct AttentionEvent {
  Index layer = 0;
  Index pos_begin = 0;
  Index n_tok = 0;
  float score_scale = 1.0f;
  float score_cap = 0.0f;       // 0 = none; see ScoreRule
  TensorView<const float> q;    // [n_q, n_tok, d_head] after QK-norm and RoPE, unscaled
  TensorView<const float> k;    // [n_kv, n_tok, d_head] after QK-norm and RoPE
  TensorView<const float> v;    // [n_kv, n_tok, d_head]
  TensorView<const float> lse;  // [n_q, n_tok] log of the sum of exp(score) over visible keys
                                // and the sink, if the layer has one
  /// [n_kv, pos_begin + n_tok, d_head] all keys so far, these included.
  TensorView<const float> k_cache;
  TensorView<const float> v_cache;  // [n_kv, pos_begin + n_tok, d_head]

  ScoreRule score_rule() const { return {score_scale, score_cap}; }
};

/// The rows of one attention layer in one forward call, in the dtype that the observer asked for.
struct RowsEvent {
  Index layer = 0;
  Index pos_begin = 0;
  Index n_tok = 0;
  TypedRows q, k, v;            // as in AttentionEvent
  TensorView<const float> lse;  // as in AttentionEvent
  /// What they lie in: they may be read as long as it is kept. The backend waits for room when too
  /// much of it is kept.
  std::shared_ptr<const void> memory;
};

/// Which experts the tokens of one call went to in one layer. Views are valid during the callback
/// only.
struct RoutingEvent {
  Index layer = 0;
  Index pos_begin = 0;
  TensorView<const std::int32_t> expert;  // [n_tok, n_picked] by falling weight
  TensorView<const float> weight;         // [n_tok, n_picked] factors of the experts' outputs
};

/// Watches forward calls. Per call: wants() for each layer, on_attention() or on_rows() for those
/// wanted and on_routing() for mixture-of-experts layers, in layer order, then on_logits() if the
/// caller asked for logits. Exceptions from callbacks end the forward call and
/// leave the cache as it was before it; rows given to on_rows() may have been passed on by then.
class Observer {
 public:
  virtual ~Observer() = default;
  /// False saves the copies that on_attention() needs for this layer.
  virtual bool wants(Index layer) const = 0;
  virtual void on_attention(const AttentionEvent& event) = 0;
  /// The dtype in which this layer's rows suffice: a backend that copies rows while it computes
  /// then calls on_rows() in place of on_attention(). Empty: on_attention() it must be.
  virtual std::optional<DType> rows_dtype(Index layer) const {
    (void)layer;
    return std::nullopt;
  }
  virtual void on_rows(const RowsEvent& event) { (void)event; }
  virtual void on_routing(const RoutingEvent& event) { (void)event; }
  /// logits [n_tok, n_vocab] of positions [pos_begin, pos_begin + n_tok).
  virtual void on_logits(Index pos_begin, TensorView<const float> logits) {
    (void)pos_begin;
    (void)logits;
  }
};

}  // namespace kvscope
