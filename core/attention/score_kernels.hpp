// Products of queries with keys as they lie in a cache, in f32: the inner loops of scoring
// in live runs.
//
// Vector code is chosen at run time. Each product depends on its query and key and the machine's
// vector width only.
#pragma once

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

}  // namespace kvscope
