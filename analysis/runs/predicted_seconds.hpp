// Roughly how long an item of a replay takes, before anything is computed: longer ones are begun
// first.
#pragma once

#include <span>

#include "core/sim/replay.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// Seconds on one core, up to a factor, of `n_pairs` methods and budgets on `n_layers` layers of a
/// trace over `calls`; exact rows are made of `n_heads` query heads.
double replay_seconds(const TraceInfo& info, std::size_t n_layers, std::size_t n_pairs,
                      std::span<const TokenRange> calls, std::size_t n_heads,
                      const ReplayOptions& replay);

}  // namespace kvscope
