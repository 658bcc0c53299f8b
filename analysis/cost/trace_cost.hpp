// Predicted times of methods on a recording: the work that is measured in a replay, on every card,
// for every batch and context.
#pragma once

#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "analysis/cost/method_cost.hpp"

namespace kvscope {

/// Keeps the work behind every selection of a replay: ReplayOptions::on_selection calls add.
class WorkCollector {
 public:
  /// Of a trace whose info outlives the collector.
  explicit WorkCollector(const TraceInfo& info) : info_(info) {}
  /// From any thread. A second selection of the same pair, layer and call replaces the first.
  void add(const SelectedCall& selected);
  /// A work that was measured elsewhere.
  void put(std::size_t pair, Index layer, std::size_t call, const LayerWork& work);
  /// Of the calls in order, without those of fewer queries than the largest (a last chunk), which
  /// no mean of calls is about; empty if the pair was not asked about the layer (a window).
  std::vector<LayerWork> calls(std::size_t pair, Index layer) const;

 private:
  const TraceInfo& info_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::size_t, Index>, std::map<std::size_t, LayerWork>> works_;
};

struct CostOptions {
  std::vector<HardwareProfile> hardware;
  std::vector<double> batches = {1.0};
  std::vector<double> contexts;  // besides the measured one: lists scaled by the rule of at_context
  std::optional<double> kv_bytes;  // empty: two on a GPU, four on a CPU
  double weight_bits = 16.0;
};

/// {"kind": "cost", ..., "lists", "rows"}: microseconds; `layers`: those replayed. lists: sizes for
/// --like, of every pair (list_sizes). Rows by card, batch, context, pair. Fields of the whole call
/// are null where the recording holds no configuration of its model. Where a layer has no
/// calls_at_length, a pair has no rows at other contexts and no break_even, and `note` says what to
/// record. Throws ConfigError if that leaves none of the contexts that were asked for.
nlohmann::ordered_json trace_cost_report(const TraceInfo& info, const std::vector<Index>& layers,
                                         const std::vector<ReplayPair>& pairs,
                                         const WorkCollector& works, Phase phase,
                                         const CostOptions& options);

}  // namespace kvscope
