// What a unit of a replay reads, and roughly how long it takes and how much memory: for schedulers,
// before anything is computed. Made from metadata alone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "analysis/unit_folder.hpp"
#include "core/sim/replay.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// q, k and v of some layers of a trace in memory: stored bytes (what is read), and bytes in f32
/// with a copy of the keys in f64.
UnitCost layers_cost(const TraceInfo& info, const std::string& name,
                     const std::vector<Index>& layers);

/// A unit that replays `n_pairs` methods and budgets over `calls`.
UnitCost replay_unit_cost(const TraceInfo& info, const std::string& name,
                          const std::vector<Index>& layers, std::size_t n_pairs,
                          std::span<const TokenRange> calls, std::size_t n_heads,
                          const ReplayOptions& replay);

}  // namespace kvscope
