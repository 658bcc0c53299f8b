// Rotary position embedding: from positions to the cosines and sines that rotate q and k.
#pragma once

#include <span>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// amplitude times cos and sin of position * frequency for lanes [0, n_tok) at positions pos_begin
/// + lane; lanes from n_tok on repeat the last position. cos, sin [pairs, lanes].
void rope_tables(std::span<const float> frequencies, float amplitude, Index pos_begin, Index n_tok,
                 Index lanes, float* cos, float* sin);

}  // namespace kvscope
