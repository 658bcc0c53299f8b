// What a unit of a replay reads, and roughly how long it takes and how much memory: for schedulers,
// before anything is computed. Made from metadata alone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "analysis/units/unit_folder.hpp"
#include "core/sim/replay.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// Bytes that a replay of one layer holds (core/sim/replay.hpp): keys and values in f32, keys in
/// f64 too, and n_rows rows of every query head in f32. by_head: of one KV head at a time
/// (core/sim/replay_heads.hpp).
double layer_memory(const TraceInfo& info, Index n_rows, bool by_head = false);

/// q, k and v of some layers of a trace: stored bytes (what is read), and layer_memory with all
/// rows.
UnitCost layers_cost(const TraceInfo& info, const std::string& name,
                     const std::vector<Index>& layers);

/// A unit that replays `n_pairs` methods and budgets over `calls`: of the queries it holds those of
/// one call, with scores for every key. by_head: as layer_memory takes it.
UnitCost replay_unit_cost(const TraceInfo& info, const std::string& name,
                          const std::vector<Index>& layers, std::size_t n_pairs,
                          std::span<const TokenRange> calls, std::size_t n_heads,
                          const ReplayOptions& replay, bool by_head);

}  // namespace kvscope
