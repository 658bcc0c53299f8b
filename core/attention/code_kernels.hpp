// Products of a query with keys that are stored as small whole numbers, in f32. Vector code is
// chosen at run time.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor/tensor.hpp"

namespace kvscope {

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
