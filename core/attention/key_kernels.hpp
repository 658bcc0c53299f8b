// Inner loops over keys and values as they lie in a cache: rows of floats, summed up in f64.
//
// Vector code is chosen at run time. Each result depends on its inputs and the machine's vector
// width only; rows with equal elements get bit-equal products.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// out[r * out_stride + t] = sum_c q[r * d + c] * k(t, c) for keys as they lie in a cache. q
/// [n_rows, d]; k [n_keys, d]; for a few rows, where a transposed copy of the keys would not pay.
void key_dots(std::span<const double> q, Index n_rows, TensorView<const float> k, double* out,
              Index out_stride);

/// out[t] = sum_c k(t, c)^2. k [n_keys, d]; out [n_keys].
void squared_norms(TensorView<const float> k, std::span<double> out);

/// out += sum over `keys` of weights[key - first] * v(key), and returns the sum of these weights.
/// v [n, d]; out [d].
double add_weighted_rows(std::span<const double> weights, Index first,
                         std::span<const std::int32_t> keys, TensorView<const float> v,
                         std::span<double> out);

/// The same for several rows of weights that share the keys: to each out[r] [d] and masses[r], bit
/// by bit what one call per row gives. Values are read once for all rows.
void add_weighted_rows(std::span<const double* const> weights, Index first,
                       std::span<const std::int32_t> keys, TensorView<const float> v,
                       std::span<double* const> out, std::span<double> masses);

/// The same over all rows of v, weights [n].
double add_weighted_rows(std::span<const double> weights, TensorView<const float> v,
                         std::span<double> out);

}  // namespace kvscope
