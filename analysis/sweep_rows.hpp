// From one replayed layer to the rows of a sweep's table: means, percentiles, bootstrap intervals.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "analysis/sweep_table.hpp"
#include "core/sim/replay.hpp"

namespace kvscope {

struct Interval {
  double low = 0.0;
  double high = 0.0;
};

/// 2.5 % and 97.5 % percentiles of the mean of `values` (NaN left out) over n_resamples resamples
/// with replacement. The numbers drawn depend on `stream` only. NaN without values or resamples.
Interval bootstrap_mean(std::span<const double> values, Index n_resamples,
                        std::initializer_list<std::uint64_t> stream);

/// How rows are labelled, and what seeds their intervals.
struct RowLabels {
  std::string trace;
  std::string phase;
  ReplayPair pair;
  Index group = 1;  // n_q / n_kv
  Index n_resamples = 200;
  std::uint64_t seed = 0;
  std::size_t trace_index = 0;
  std::size_t pair_index = 0;
};

/// The rows and arrays of pair `pair_slot` of `replay`.
SweepBlock make_sweep_block(const LayerReplay& replay, std::size_t pair_slot,
                            std::size_t layer_slot, const RowLabels& labels);

}  // namespace kvscope
