// Vector kernels for the few tokens of a decode step: rows of weights or keys lie in the vector's
// lanes, so that no lane is left idle. Each result has the bits of the lane kernels: the same chain
// of operations in the same order.
#pragma once

#include <cstdint>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Tokens (or query rows of a KV head) up to which these kernels are quicker.
constexpr Index kMaxRowTokens = 8;

/// True if row_matmul takes this shape; otherwise use lane_matmul.
bool row_matmul_takes(Index n_rows, Index k, Index n_tok);

/// y = w x + bias as lane_matmul computes it, for the first n_tok lanes; the other lanes become 0.
/// w [n_rows, k] with row stride ldw; x [n_tok, k]; y [n_rows, lanes]; bias [n_rows] or null.
void row_matmul(const float* w, Index ldw, Index n_rows, Index k, const float* bias, const float* x,
                Index n_tok, float* y, Index lanes);
/// The same on bf16 weights, widened on the way.
void row_matmul(const std::uint16_t* w, Index ldw, Index n_rows, Index k, const float* bias,
                const float* x, Index n_tok, float* y, Index lanes);

/// A few queries of one KV head against the keys of one span; see
/// core/tensor/attention_kernels.hpp.
struct RowAttention {
  const float* q = nullptr;           // [n_rows, d_head] already times the score scale
  const std::int32_t* pos = nullptr;  // [n_rows] position of each query
  Index n_rows = 0;                   // 1 to kMaxRowTokens
  const float* k = nullptr;           // [n, d_head] keys of this KV head from position 0
  const float* v = nullptr;           // [n, d_head]
  /// Rows of k and v that are keys key_begin, ... (keys are then counted along this list, as `pos`
  /// is); null = all.
  const std::int32_t* rows = nullptr;
  Index d_head = 0;
  Index key_begin = 0;  // a multiple of kKeyBlock
  Index key_end = 0;    // in the span of key_begin
  Index window = 0;     // keys seen per query, itself included; 0 = all
  float cap = 0.0f;     // as in LaneAttention
  bool has_addends = false;
  float* part = nullptr;  // [n_rows, d_head + 2]: maximum, sum, output before division
};

/// Fills task.part.
void row_attention(const RowAttention& task);

/// Joins the parts of a query's spans, ascending, the first at `parts` and each next one `stride`
/// floats on. sink_logit: its value, or null. out [d_head]. Returns the log-sum-exp.
float join_row_parts(const float* parts, Index n_parts, Index stride, Index d_head,
                     const float* sink_logit, float* out);

}  // namespace kvscope
