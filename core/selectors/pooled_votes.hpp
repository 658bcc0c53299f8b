// Votes for keys smoothed over their neighbours, so that clusters survive together (SnapKV,
// Ada-KV).
#pragma once

#include <span>
#include <vector>

#include "core/base/fields.hpp"

namespace kvscope {

enum class Pooling { average, max, none };

/// Pools over `kernel` neighbours (an odd number) with stride 1. The average counts missing
/// neighbours as zero, as zero padding does.
std::vector<double> pooled_votes(std::span<const double> votes, Index kernel, Pooling pooling);

}  // namespace kvscope
