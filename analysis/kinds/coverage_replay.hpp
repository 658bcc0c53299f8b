// The selections' side of coverage: replays pairs and keeps, per layer, what each head kept and the
// maps of where.
#pragma once

#include <stop_token>
#include <vector>

#include "analysis/kinds/query_page_map.hpp"
#include "core/sim/replay.hpp"

namespace kvscope {

/// One pair in one layer.
struct PairCoverage {
  std::vector<double> mass;       // [n_heads] mean over rows
  std::vector<double> mass_p05;   // [n_heads]
  std::vector<double> kept_keys;  // [n_heads] mean over rows
  double mass_mean = 0.0;         // over heads and rows
  double mass_p05_all = 0.0;      // 5th percentile over heads and rows
  bool is_dense = false;
  std::vector<float> map_kept;      // [n_cells]; empty for a windowed layer: all that is there
  std::vector<float> map_selected;  // [n_cells]
};

/// Replays `pairs` over `layers`; answers [layers.size()][pairs.size()]. The maps of all these
/// layers and pairs are held at once.
std::vector<std::vector<PairCoverage>> replay_coverage(
    const TraceSource& trace, const TraceSource* draft, const std::vector<Index>& layers,
    const std::vector<ReplayPair>& pairs, const ReplayOptions& options, const MapGrid& grid,
    ThreadPool& pool, const ProgressFn& progress, const std::stop_token& stop);

}  // namespace kvscope
