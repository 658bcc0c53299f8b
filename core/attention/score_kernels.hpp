// Products of queries with keys, in f32: the inner loops of scoring in live runs. Keys lie as in a
// cache, channel by channel in blocks of keys (a channel that is left out is not read), or as small
// whole numbers.
//
// Vector code is chosen at run time. Each product depends on its query and key and the machine's
// vector width only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// out[r * out_stride + t] = sum_c q[r * d + c] * k(t, c). q [n_rows, d]; k [n_keys, d]. `scratch`
/// is grown as needed.
void key_dots_f32(std::span<const float> q, Index n_rows, TensorView<const float> k,
                  std::vector<float>& scratch, double* out, Index out_stride);

/// out[t] = the largest of these products over all rows. out [n_keys]; n_rows >= 1.
void largest_key_dots_f32(std::span<const float> q, Index n_rows, TensorView<const float> k,
                          std::vector<float>& scratch, std::span<double> out);

/// Keys whose channels lie side by side.
inline constexpr Index kColumnKeys = 64;

/// out[r * out_stride + t] = sum_i q[r * channels.size() + i] * blocks[t / 64][channels[i]][t % 64]
/// for the keys t in [0, n_keys), which begin at a block. blocks [n_blocks, width, kColumnKeys];
/// each sum is one chain in order of i.
void column_dots(std::span<const float> q, Index n_rows, std::span<const Index> channels,
                 const float* blocks, Index width, Index n_keys, double* out, Index out_stride);

/// out[i] = sum_c q[c] * codes[keys[i] * d + c], d = q.size(). codes [n_keys,
/// d]; out [keys.size()].
void code_dots(std::span<const float> q, const std::uint8_t* codes,
               std::span<const std::int32_t> keys, std::span<double> out);

/// Smallest and largest element of x, which is not empty.
struct FloatRange {
  float low = 0.0f;
  float high = 0.0f;
};
FloatRange range_of(std::span<const float> x);

/// codes[c] = floor((x[c] - low) * inverse_step + 0.5) in f64, for low <= x[c] and results below
/// 256. codes [x.size()].
void round_to_codes(std::span<const float> x, double low, double inverse_step, std::uint8_t* codes);

}  // namespace kvscope
