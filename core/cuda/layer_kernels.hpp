// What a layer does beside products and attention, on rows of tokens in device memory: embedding,
// norms, RoPE, activations, sums. A token's numbers depend on no other token of the call.
#pragma once

#include <cstdint>
#include <span>

#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

/// A weight matrix, rows one after another, as f32 or bf16.
struct DeviceMatrix {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t n_rows = 0;
  std::int64_t n_cols = 0;
  explicit operator bool() const { return data != nullptr; }
};

/// Where the first value that is NaN or infinite stood: the smallest code that was noted, kNowhere
/// at first. In device memory.
using BadPlace = unsigned long long;
inline constexpr BadPlace kNowhere = ~0ULL;
enum class BadValue { key, value, score };
/// By layer, then kind, then position.
inline constexpr BadPlace bad_place(std::int64_t layer, BadValue what, std::int64_t pos) {
  return static_cast<BadPlace>(layer) << 44 | static_cast<BadPlace>(what) << 40 |
         static_cast<BadPlace>(pos);
}

/// x[t] = scale * row tokens[t]. x [n_tok, n_cols]
void embed_rows(const DeviceMatrix& embedding, const std::int32_t* tokens, int n_tok, float scale,
                float* x, StreamHandle stream);

/// y = norm(x) of rows of n values, or x += added and then y = norm(x); x and y may be the same.
struct NormCall {
  float* x = nullptr;  // written where something is added
  std::int64_t x_stride = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;
  void* halves = nullptr;  // [n_tok, n] y rounded to bf16, or null
  const float* weight = nullptr;
  const float* bias = nullptr;  // null: none
  int n = 0;
  float eps = 0.0f;
  bool takes_mean = false;       // a layer norm
  const float* added = nullptr;  // [n_tok, n], x_stride n; null: nothing
};
void norm_rows(const NormCall& call, int n_tok, StreamHandle stream);

/// amplitude times the cosines and sines of positions pos_begin + t. cos, sin [n_tok, n]; the angle
/// is rounded to f32 as in core/model/rope.hpp.
void make_rope_rows(const float* frequencies, int n, float amplitude, std::int64_t pos_begin,
                    int n_tok, float* cos, float* sin, StreamHandle stream);

/// The heads of q, k or v on their way from a product to attention: QK-norm, RoPE, then head by
/// head into rows of `dtype`.
struct HeadsCall {
  const float* x = nullptr;  // head h of token t at x + t * stride + h * head_stride
  std::int64_t stride = 0;
  std::int64_t head_stride = 0;
  const float* norm = nullptr;  // [d_head] of every head's RMS norm, or null
  float eps = 0.0f;
  const float* cos = nullptr;  // [n_tok, rotary_dim / 2], or null: no RoPE
  const float* sin = nullptr;
  int rotary_dim = 0;
  void* out = nullptr;  // [n_heads, out_capacity, d_head], token t at row out_begin + t
  std::int64_t out_capacity = 0;
  std::int64_t out_begin = 0;
  DType dtype = DType::f32;
  int n_heads = 0;
  int d_head = 0;           // at most 256
  BadPlace* bad = nullptr;  // values that are not finite are noted as first_code + t; null: not
  BadPlace first_code = 0;  // bad_place of token 0
};
/// Up to three of them in one kernel.
void place_heads(std::span<const HeadsCall> calls, int n_tok, StreamHandle stream);

/// y[t, h * d_head + c] = out[h, t, c], rounded where y is in bf16 (both in bf16: d_head is a
/// multiple of 8). A log-sum-exp that is not finite is noted (minus infinity is allowed where a
/// query may see nothing). lse [n_q, n_tok]
struct HeadsToRows {
  const void* out = nullptr;  // [n_q, n_tok, d_head] of dtype
  DType dtype = DType::f32;
  const float* lse = nullptr;
  void* y = nullptr;
  DType y_dtype = DType::f32;
  int n_q = 0;
  int d_head = 0;
  BadPlace* bad = nullptr;  // as in HeadsCall
  BadPlace first_code = 0;
};
void heads_to_rows(const HeadsToRows& call, int n_tok, StreamHandle stream);

enum class Gate { silu, gelu_tanh, gelu_alone };
/// hidden = activation(gate) * up, or activation(up). gate and up [n_tok, stride], hidden
/// [n_tok, n] of dtype.
void activate_rows(Gate gate_form, const float* gate, const float* up, std::int64_t stride, int n,
                   int n_tok, void* hidden, DType dtype, StreamHandle stream);

/// hidden[t, f] = (up + 1) * gate * sigmoid(alpha * gate) with gate = gate_up[t, 2 f] of at most
/// `limit` and up = gate_up[t, 2 f + 1] between -limit and limit; see MoeConfig.
void activate_clamped_rows(const float* gate_up, float alpha, float limit, int n, int n_tok,
                           void* hidden, DType dtype, StreamHandle stream);
/// y[i] = x[token[i]] rounded to dtype, for n_rows rows of n values.
void gather_rows(const float* x, std::int64_t x_stride, const std::int32_t* token, int n_rows,
                 int n, void* y, DType dtype, StreamHandle stream);
/// y[token[i]] += weight[i] * x[i]; no token is named twice.
void scatter_rows(const float* x, const std::int32_t* token, const float* weight, int n_rows, int n,
                  float* y, std::int64_t y_stride, StreamHandle stream);
/// y = 0. y [n_tok, n]
void clear_rows(float* y, std::int64_t count, StreamHandle stream);

/// x[i] += y[i], count values.
void add_rows(float* x, const float* y, std::int64_t count, StreamHandle stream);
/// y[t, i] += bias[i]. y [n_tok, stride]
void add_bias(float* y, std::int64_t stride, const float* bias, int n, int n_tok,
              StreamHandle stream);
/// Rows of n values rounded to bf16, packed. x [n_tok, stride]
void round_rows(const float* x, std::int64_t stride, int n, int n_tok, void* halves,
                StreamHandle stream);
/// floats = halves, count values.
void widen_rows(const void* halves, std::int64_t count, float* floats, StreamHandle stream);
void set_word(std::int32_t* at, std::int32_t value, StreamHandle stream);

/// y[t] = matrix x[t] in true f32: every element is one chain of multiply-adds over the columns in
/// order, whatever the other tokens of the call. x [n_tok, x_stride], y [n_tok, y_stride]
void multiply_f32(const DeviceMatrix& matrix, const float* x, std::int64_t x_stride, float* y,
                  std::int64_t y_stride, int n_tok, StreamHandle stream);

}  // namespace kvscope::gpu
