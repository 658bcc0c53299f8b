// Llama 3's RoPE scaling, found from the factors that a GGUF file stores instead of its settings.
//
// The settings divide the angle of pair i by a factor between 1 (fast pairs) and `factor` (slow
// ones). A file has these divisors, one per pair, in the tensor rope_freqs.weight.
#pragma once

#include <optional>
#include <span>

#include "core/model/config.hpp"

namespace kvscope {

/// The settings whose divisors are `factors` [d_head / 2], with the low and high frequency factors
/// 1 and 4 of all published models; factor 1 if they are all 1. Empty if there are none: each
/// divisor must agree within 1e-4 of itself.
std::optional<RopeConfig> llama3_scaling(std::span<const float> factors, double theta,
                                         Index d_head);

}  // namespace kvscope
