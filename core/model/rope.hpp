// Rotary position embedding: from positions to the cosines and sines that rotate q and k.
#pragma once

#include <span>
#include <vector>

#include "core/model/config.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Angles per position step, one for each pair of channels. [d_head / 2]. In float, as Hugging Face
/// transformers computes them, so that long contexts rotate by the same rounded angles.
/// Kinds: plain theta^(-2i/d); linear divides by the factor; llama3 divides long wavelengths
/// (more than original_max_positions / low_freq_factor), keeps short ones and blends between; yarn
/// does so by the number of turns within the original context.
std::vector<float> rope_frequencies(const RopeConfig& rope, Index d_head);

/// amplitude times cos and sin of position * frequency for lanes [0, n_tok) at positions pos_begin
/// + lane; lanes from n_tok on repeat the last position. cos, sin [d_head / 2, lanes].
void rope_tables(std::span<const float> frequencies, float amplitude, Index pos_begin, Index n_tok,
                 Index lanes, float* cos, float* sin);

}  // namespace kvscope
