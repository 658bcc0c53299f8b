// Means of what a replay measured, over calls and heads. A metric of rows (ReplayMetric up to
// forced_share) counts each measured row once, in whichever call; what belongs to a call (keys
// loaded, FLOPs, bytes) counts each call once.
#pragma once

#include <limits>
#include <vector>

#include "core/sim/replay.hpp"

namespace kvscope {

/// Measured rows of each call, by which row metrics weigh the calls; empty where all have as many.
std::vector<double> row_weights(const LayerReplay& replay);

/// Over the heads [first, last), by slot. NaN values are left out.
double mean_of(const LayerReplay& replay, const PairReplay& pair, ReplayMetric metric,
               std::size_t first = 0, std::size_t last = std::numeric_limits<std::size_t>::max());

/// Over values that are not NaN; weights as row_weights() gives them, repeated for every head.
double weighted_mean(std::span<const double> values, std::span<const double> weights);

}  // namespace kvscope
