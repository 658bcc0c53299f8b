// Products of queries with keys that lie channel by channel, in blocks of keys, in f32: a channel
// that is left out is not read. Vector code is chosen at run time.
#pragma once

#include <span>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Keys whose channels lie side by side.
inline constexpr Index kColumnKeys = 64;

/// out[r * out_stride + t] = sum_i q[r * channels.size() + i] * blocks[t / 64][channels[i]][t % 64]
/// for the keys t in [0, n_keys), which begin at a block. blocks [n_blocks, width, kColumnKeys];
/// each sum is one chain in order of i.
void column_dots(std::span<const float> q, Index n_rows, std::span<const Index> channels,
                 const float* blocks, Index width, Index n_keys, double* out, Index out_stride);

}  // namespace kvscope
