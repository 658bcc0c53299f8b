// One layer's attention problem and the places for its answer, in rows and in lane blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/tensor/bf16_kernels.hpp"
#include "core/tensor/score_rule.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

class RemoteRows;

/// What is asked: query i of n_tok stands at position pos_begin + i and sees the keys at positions
/// <= its own (and within the layer's window, if it has one).
struct AttentionQuestion {
  Index layer = 0;
  Index pos_begin = 0;
  Index n_tok = 0;
  float score_scale = 1.0f;
  float score_cap = 0.0f;       // 0 = none; see ScoreRule
  TensorView<const float> q;    // [n_q, n_tok, d_head]
  TensorView<const float> k;    // [n_kv, pos_begin + n_tok, d_head]
  TensorView<const float> v;    // [n_kv, pos_begin + n_tok, d_head]
  std::optional<Index> window;  // positions that a query sees, its own included; empty = all
  /// [n_q] or empty: a logit per head that joins every softmax and has no value: prob[j] =
  /// exp(score[j]) / (exp(sink) + sum exp(score)). It is part of the log-sum-exp.
  std::span<const float> sink_logits;
  /// Not null: k and v have shapes and no data, nor has q unless who is asked needs it (HostRows);
  /// they lie where this one looks.
  const RemoteRows* remote = nullptr;

  ScoreRule score_rule() const { return {score_scale, score_cap}; }
};

/// Keys and values as a cache in bf16 holds them, and how they are multiplied.
struct HalfRows {
  TensorView<const std::uint16_t> k;  // [n_kv, n, d_head], rows contiguous per head
  TensorView<const std::uint16_t> v;
  Matmul matmul = Matmul::bf16_portable;
  explicit operator bool() const { return k.data() != nullptr; }
};

/// Where an answer goes in rows.
struct AttentionRows {
  TensorView<float> out;  // [n_q, n_tok, d_head]
  TensorView<float> lse;  // [n_q, n_tok]; -infinity where a query attended to nothing
};

/// Where an answer goes in lane blocks: token t of the call is lane t % lanes of block t / lanes.
struct AttentionLanes {
  Index lanes = 0;
  float* out = nullptr;   // [n_blocks][n_q * d_head, lanes]
  TensorView<float> lse;  // [n_q, n_tok], as in AttentionRows
};

}  // namespace kvscope
