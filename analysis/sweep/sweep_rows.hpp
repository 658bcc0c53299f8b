// From one replayed layer to the rows of a sweep's table: means, percentiles, bootstrap intervals.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "analysis/base/statistics.hpp"
#include "analysis/sweep/match.hpp"
#include "analysis/sweep/sweep_result.hpp"
#include "analysis/sweep/sweep_table.hpp"
#include "core/base/nan.hpp"
#include "core/base/rng.hpp"
#include "core/sim/replay.hpp"

namespace kvscope {

/// 2.5 % and 97.5 % percentiles of means over n_resamples resamples with replacement. The numbers
/// drawn depend on `stream` only; they are drawn once for all metrics with as many values. One
/// thread only.
class Bootstrap {
 public:
  Bootstrap(Index n_resamples, std::initializer_list<std::uint64_t> stream)
      : n_resamples_(n_resamples), rng_(stream) {}
  /// Of the mean of `values` (NaN left out), by `weights` where there are any. NaN without values
  /// or resamples.
  Interval mean(std::span<const double> values, std::span<const double> weights = {});

 private:
  void draw(std::size_t n_values);
  Index n_resamples_;
  CounterRng rng_;
  std::size_t n_values_ = 0;
  std::vector<std::uint32_t> drawn_;  // [n_resamples, n_values] places among the values
};

/// The same for one metric.
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
  MatchLabels match;
  double predicted_us = kNan;  // of the layer's row
  double predicted_dense_us = kNan;
};

/// A block (its place alone) that could not be measured: its rows name trace, method, budget, layer
/// and heads, every number else is NaN, no key has an age.
SweepBlock empty_sweep_block(const SweepResult& result, SweepBlock block);

/// Fills lost_dividing of rows that met their cost, where method `ceiling` met it too; of one layer
/// or head it may be below 0: the ceiling gives some more keys and others fewer.
void split_losses(std::vector<SweepBlock>& blocks);

/// The rows and arrays of pair `pair_slot` of `replay`.
SweepBlock make_sweep_block(const LayerReplay& replay, std::size_t pair_slot,
                            std::size_t layer_slot, const RowLabels& labels);

}  // namespace kvscope
