// The nucleus of a row of weights: the few keys that together hold a share p of its mass (top-p).
//
// M(theta) = sum of the weights >= theta falls in steps as theta grows. SpecAttn (arXiv 2510.27641,
// algorithm 2) bisects theta between 0 and the largest weight with the invariant M(low) >= p * sum,
// but returns the last midpoint it tried, which misses the target whenever that last test failed.
#pragma once

#include <span>
#include <vector>

#include "core/base/fields.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// How the threshold is found.
enum class NucleusMode {
  paper_eps,  // bisect to a width of 1e-6, use the last midpoint: as printed
  paper_10,   // 10 bisections, use the last midpoint: as the paper's footnote implements it
  safe_low,   // 10 bisections, use the low end: never misses the target, may keep far too much
  exact,      // the smallest set that reaches the target; ties by rising index
};

/// Indices of the weights that are at least theta, ascending.
std::vector<Index> indices_at_least(std::span<const float> weights, double theta);

/// Indices of the nucleus of `weights` (>= 0, finite), ascending. The target is p * sum(weights);
/// p >= 1 keeps every weight > 0 in each mode. An all-zero row has an empty nucleus. Where
/// paper_eps never bisects (largest weight <= 1e-6) its threshold is undefined in print: 0 is used,
/// which keeps everything. Throws ConfigError if p <= 0.
std::vector<Index> nucleus(std::span<const float> weights, double p, NucleusMode mode);

}  // namespace kvscope
