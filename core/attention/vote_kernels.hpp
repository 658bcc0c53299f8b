// Softmax over keys of many query rows at once, in f32, a block of keys at a time: rows lie in
// the vector's lanes.
//
// A block keeps its exponentials relative to its own maxima, so that blocks can be made in any
// order and by any thread; join_maxima then finds what each row divides by. Vector code is chosen
// at run time.
#pragma once

#include <cstdint>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// scores [n_keys, lanes] become exp(score - max), max and sum [lanes] over the block's keys. Lane
/// l sees the keys begin[l] <= t < end[l]; others get 0, and a lane that sees none has max
/// -infinity. begin, end: null = sees all.
void exp_of_block(float* scores, Index n_keys, Index lanes, const std::int32_t* begin,
                  const std::int32_t* end, float* max, float* sum);

/// Over the blocks' max and sum [n_blocks, lanes]: the largest maximum, and 1 / the sum of all
/// exponentials relative to it; scale 0 for a lane that sees nothing. sink_logits [lanes] or null:
/// a logit that joins the sum. max_of_all, scale [lanes].
void join_maxima(const float* max, const float* sum, Index n_blocks, Index lanes,
                 const float* sink_logits, float* max_of_all, float* scale);

/// out[l] = scale[l] * exp(max[l] - max_of_all[l]): turns a block's exponentials
/// into softmax weights.
void block_factors(const float* max, const float* max_of_all, const float* scale, Index lanes,
                   float* out);

/// sums[t] += sum_l exponentials[t, l] * factors[l]. exponentials [n_keys, lanes]; sums [n_keys].
void add_weights_of_lanes(const float* exponentials, Index n_keys, Index lanes,
                          const float* factors, float* sums);

}  // namespace kvscope
