// What a live run counted: keys attended to and loaded, what that cost, and where the time went.
#pragma once

#include <array>
#include <vector>

#include "core/attention/list_plan.hpp"
#include "core/selectors/selector.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// Sums over the calls of one phase in the layers where the method answers (its dense layers and
/// sliding-window layers are left out, as in the papers' KV reductions).
struct KeptTotals {
  std::vector<double> attended;  // [n_q] keys over all queries
  std::vector<double> visible;   // [n_q] what dense attention would have attended to
  /// [n_kv] keys that any query of the head's group attended to, per call.
  std::vector<double> loaded;
  std::vector<double> available;  // [n_kv] keys in the cache, per call
  double n_calls = 0.0;           // (layer, call) pairs counted

  /// Of one layer's selection for one call.
  static KeptTotals of(const Selection& selection, Index n_q, Index n_kv, TokenRange call);
  /// Of every visible key.
  static KeptTotals of_dense(Index n_q, Index n_kv, TokenRange call);
  /// Of lists that are not here, but were counted.
  static KeptTotals of_counts(const ListCounts& counts, TokenRange call);
  double n_attended() const;  // over all query heads
  double n_visible() const;
  double n_loaded() const;  // over all KV heads
  double n_available() const;
  /// Adds another run's totals.
  void add(const KeptTotals& other);
  /// 1 - attended / visible, a ratio of totals over query heads; 0 if nothing was counted.
  double reduction() const;
};

/// What calls cost over all layers without a sliding window, those included that the method leaves
/// dense: what a comparison at equal cost meets.
struct CostTotals {
  double attended = 0.0;  // keys, over query heads, queries and layers
  double visible = 0.0;   // what dense attention would have attended to
  double n_rows = 0.0;    // (query head, query, layer)
  double bytes = 0.0;     // read to score, and keys and values
  double n_calls = 0.0;   // (layer, call)
  double longest = 0.0;   // keys in the cache at most

  void add(const CostTotals& other);
  /// NaN where nothing was counted.
  double keys() const;            // kept per query row
  double density() const;         // kept / visible, a ratio of totals
  double bytes_per_call() const;  // read per forward call and layer, by all query heads
};

/// Seconds of forward calls.
struct LiveTimes {
  double total = 0.0;
  double attention = 0.0;  // of all layers
  double selection = 0.0;  // the selector's own work: metadata, scores, lists, eviction
  double rest() const { return total - attention - selection; }
};

struct LiveStats {
  std::array<KeptTotals, 3> kept;  // by Phase
  std::array<CostTotals, 3> cost;  // the same
  LiveTimes times;

  KeptTotals& of(Phase phase) { return kept[static_cast<std::size_t>(phase)]; }
  const KeptTotals& of(Phase phase) const { return kept[static_cast<std::size_t>(phase)]; }
  const CostTotals& cost_of(Phase phase) const { return cost[static_cast<std::size_t>(phase)]; }
  /// What was kept of one layer in one call of `phase`. is_own: the method answered, and did not
  /// leave the layer dense; score_bytes: read to choose.
  void add(Phase phase, const KeptTotals& kept_here, const AttentionShape& shape, TokenRange call,
           bool is_own, double score_bytes);
  /// All phases together.
  KeptTotals all() const;
  CostTotals all_costs() const;
};

}  // namespace kvscope
