// What the presses of kvpress compute, by loops: the formulas of tests/golden/conformance in f64.
// A press scores the keys of a whole prompt after its attention; the best stay.
#pragma once

#include <vector>

#include "core/attention/selection.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope::test {

/// What one layer sees of a prompt of T tokens; keys and queries are rotated.
struct Prompt {
  Tensor<float> hidden;  // [T, width], before the projections
  Tensor<float> w_q;     // [n_q * d, width]
  Tensor<float> w_o;     // [width, n_q * d]
  Tensor<float> q;       // [n_q, T, d]
  Tensor<float> k;       // [n_kv, T, d]
  Tensor<float> v;       // [n_kv, T, d]
  double rope_theta = 10000.0;
  Index n_tok() const { return k.dim(1); }
  Index group() const { return q.dim(0) / k.dim(0); }
};

using Scores = std::vector<std::vector<double>>;    // [n_kv][T]
using KeptKeys = std::vector<std::vector<KeyPos>>;  // [n_kv], ascending

/// Minus the norm of each key.
Scores knorm_scores(const Prompt& prompt);

struct ExpectedAttentionRule {
  Index n_future = 512;
  Index n_sink = 4;
  bool has_covariance = true;
  bool has_value_norm = true;
  double eps = 0.0;
};
/// Softmax weights that queries of the next positions are expected to give, if they are normally
/// distributed as the prompt's are before rotation, times the norm of the values.
Scores expected_attention_scores(const Prompt& prompt, const ExpectedAttentionRule& rule);

struct LagKvRule {
  Index n_sink = 4;
  Index lag = 128;
  bool is_cross = false;  // scores of all partitions compete, not ranks within each
};
/// How unevenly a key and its value fill the ranges of the partition behind them.
Scores lagkv_scores(const Prompt& prompt, const LagKvRule& rule);

/// Minus the product of each key with its head's filter [n_kv, d].
Scores filter_scores(const Prompt& prompt, const Tensor<float>& filters);

/// Mean softmax weights of the last `window` queries, pooled over `kernel` keys; the window itself
/// one above the layer's best.
Scores snapkv_scores(const Prompt& prompt, Index window, Index kernel);

/// Mean over the group's heads of the L1 norm of W_o v.
Scores projected_value_norms(const Prompt& prompt);

/// CriticalKV: the best `n_first` of `inner` at the largest number, the others times the norms.
Scores critical_scores(const Prompt& prompt, const Scores& inner, Index n_first, double eps);

/// Per head the n best.
KeptKeys best_keys(const Scores& scores, Index n);

/// Ada-KV as kvpress has it: n keys per head on the average, the best trunc(share * n) of each
/// head (at least one, if share > 0) safe.
KeptKeys ada_keys(const Scores& scores, Index n, double share);

/// CriticalAdaKV: those numbers of keys per head, the first part of them by `scores`, the rest by
/// critical_scores.
KeptKeys critical_ada_keys(const Prompt& prompt, const Scores& scores, Index n, double share,
                           double first_part, double eps);

/// ThinK: the channels of each KV head that stay, ascending.
std::vector<std::vector<Index>> think_channels(const Prompt& prompt, double dropped_share,
                                               Index window);

}  // namespace kvscope::test
