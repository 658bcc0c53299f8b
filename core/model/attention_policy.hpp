// Where a selector takes hold of the running model: who computes attention in a layer, from what.
#pragma once

#include <span>

#include "core/model/kv_cache.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// One layer's attention problem. Query i of n_tok stands at position pos_begin + i and sees the keys at
/// positions <= its own (and within the layer's window, if it has one).
struct AttentionCall {
  Index layer = 0;
  Index pos_begin = 0;
  Index n_tok = 0;
  float score_scale = 1.0f;
  TensorView<const float> q;  // [n_q, n_tok, d_head]
  TensorView<const float> k;  // [n_kv, pos_begin + n_tok, d_head]
  TensorView<const float> v;  // [n_kv, pos_begin + n_tok, d_head]
  /// [n_q] or empty: a logit per head that joins every softmax and has no value: prob[j] =
  /// exp(score[j]) / (exp(sink) + sum exp(score)). It is part of the log-sum-exp.
  std::span<const float> sinks;
  TensorView<float> out;      // [n_q, n_tok, d_head] to be filled
  TensorView<float> lse;      // [n_q, n_tok] to be filled; -infinity where a query attended to nothing
};

/// Replaces dense attention in the layers that it takes. Called in layer order within a forward call.
class AttentionPolicy {
 public:
  virtual ~AttentionPolicy() = default;
  /// False leaves the layer to the built-in dense attention.
  virtual bool takes(Index layer) const = 0;
  virtual void attend(const AttentionCall& call) = 0;
};

}  // namespace kvscope
