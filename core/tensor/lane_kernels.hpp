// Vector kernels on lane blocks: [n_features, lanes] matrices whose columns are tokens.
//
// A lane block holds up to `lanes` tokens (16 or 32) side by side: feature f of token t is at f *
// lanes + t. All kernels treat each lane on its own and in one fixed order of operations, so a
// token's result has the same bits whatever stands in the other lanes: chunked prefill, decode and
// one-shot agree. The instruction set (baseline to AVX-512) is picked at run time.
#pragma once

#include "core/tensor/tensor.hpp"

namespace kvscope {

constexpr Index kWideLanes = 32;    // lane count of prefill blocks
constexpr Index kNarrowLanes = 16;  // lane count when at most 16 tokens run (decode)

/// y = w x + bias. Each output is one chain of fused multiply-adds over k, in order.
/// w [n_rows, k] with row stride ldw; x [k, lanes]; y [n_rows, lanes]; bias [n_rows] or null.
void lane_matmul(const float* w, Index ldw, Index n_rows, Index k, const float* bias,
                 const float* x, float* y, Index lanes);

/// y[f] = x[f] * weight[f] / sqrt(mean_f x[f]^2 + eps), per lane. x, y [n, lanes]; may be the same.
void lane_rms_norm(const float* x, const float* weight, Index n, float eps, float* y, Index lanes);

/// Rotates the pairs (x[i], x[i + d/2]) by the angles of cos and sin. x [d, lanes]; cos,
/// sin [d/2, lanes].
void lane_rope(float* x, const float* cos, const float* sin, Index d, Index lanes);

/// gate = silu(gate) * up, elementwise over n values.
void lane_swiglu(float* gate, const float* up, Index n);

/// The clamped SwiGLU of gpt-oss: with g = min(gate, limit) and u = clamp(up, -limit, limit),
/// out = (u + 1) * g * sigmoid(alpha * g). gate_up [2 * n, lanes]: row 2 f is gate f, row 2 f + 1
/// is up f; out [n, lanes].
void lane_clamped_swiglu(const float* gate_up, Index n, float alpha, float limit, float* out,
                         Index lanes);

/// gate = gelu(gate) * up, elementwise over n values (a multiple of 16), with gelu(x) = x / 2 (1 +
/// tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (arXiv 1606.08415, section 2). Each value on its own, so
/// a token's result does not depend on its neighbours.
void lane_gelu_gate(float* gate, const float* up, Index n);

/// y = (x - mean) / sqrt(variance + eps) * weight + bias per lane, mean and variance over the n
/// features (arXiv 1607.06450, section 3). x, y [n, lanes] (they may be the same); weight, bias
/// [n]; lanes a multiple of 16.
void lane_layer_norm(const float* x, const float* weight, const float* bias, Index n, float eps,
                     float* y, Index lanes);

/// x = gelu(x), elementwise over n values, with gelu(x) = x / 2 (1 + erf(x / sqrt(2))) (arXiv
/// 1606.08415, section 2).
void lane_gelu(float* x, Index n);

/// x += y, elementwise over n values.
void lane_add(float* x, const float* y, Index n);

/// rows[t * row_stride + f] = x[f * lanes + t] for t < n_tok. x [n_features, lanes].
void rows_from_lanes(const float* x, Index n_features, Index lanes, Index n_tok, float* rows,
                     Index row_stride);

/// The inverse of rows_from_lanes, times `scale`; lanes from n_tok on become zero.
void lanes_from_rows(const float* rows, Index row_stride, Index n_features, Index lanes,
                     Index n_tok, float scale, float* x);

}  // namespace kvscope
