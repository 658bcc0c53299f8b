// Equal cost on a recording: a method's setting is turned until a replay of the measured rows costs
// what it should.
#pragma once

#include <span>
#include <stop_token>
#include <vector>

#include "analysis/cost/trace_cost.hpp"
#include "analysis/sweep/match.hpp"
#include "core/sim/replay.hpp"

namespace kvscope {

/// What is replayed. References must outlive it.
struct MatchScene {
  const TraceSource& trace;
  const TraceSource* draft = nullptr;
  std::vector<Index> layers;  // ascending; at least one without a sliding window
  const ReplayOptions& options;
  ThreadPool& pool;
  std::stop_token stop;
  const HardwareProfile* hardware = nullptr;  // the card whose microseconds are met; for `us` alone
};

/// replay_layers of one pair; layers that do not need each other are replayed side by side. The
/// same bits.
std::vector<LayerReplay> replay_side_by_side(const MatchScene& scene, const ReplayPair& pair,
                                             const ReplayOptions& options,
                                             const ProgressFn& progress = {});

/// Mean keys that a measured row of this layer sees; as many as are kept where the layer has a
/// window.
double mean_visible(const LayerReplay& layer);

/// The cost of pair `slot` over the layers without a sliding window, dense ones included: of keys
/// and bytes the mean over layers, of the density the ratio of their sums. NaN if there is no such
/// layer, and of `us`, which does not follow from a replay's numbers alone.
double measured_cost(std::span<const LayerReplay> layers, std::size_t slot, MatchQuantity quantity);

/// replay_side_by_side, and what it cost: measured_cost of the pair, or its predicted microseconds
/// on scene.hardware, mean over calls and layers (column predicted_us of a sweep's rows).
struct CostedReplay {
  std::vector<LayerReplay> layers;
  double cost = 0.0;
};
CostedReplay replay_and_cost(const MatchScene& scene, const ReplayPair& pair,
                             const ReplayOptions& options, MatchQuantity quantity,
                             const ProgressFn& progress = {});

/// A method with its setting where its measured cost is nearest to the target.
struct MatchedPair {
  ReplayPair pair;  // as it runs
  MatchLabels labels;
};

/// Turns the budget setting of `method`. A method without one is run as it is, one that refuses
/// every value of it keeps an empty pair.selector; labels.note says so. Throws what replay_layers
/// throws of the trace (not of the method), Interrupted on a stop.
MatchedPair match_pair(const MatchScene& scene, const MethodSpec& method,
                       const MatchTarget& target);

/// What besides the search explains a cost that is not met, as words to follow its note: layers
/// that stay dense, keys kept by rule. Empty if neither matters.
std::string match_reasons(std::span<const LayerReplay> layers, std::size_t slot);

}  // namespace kvscope
