// What a live run counted: keys attended to and loaded, what that cost, and where the time went.
#pragma once

#include <array>

#include "core/attention/list_plan.hpp"
#include "core/selectors/selector.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// What calls attended to, loaded and cost in layers without a sliding window.
struct CostTotals {
  double attended = 0.0;   // keys, over query heads, queries and layers
  double visible = 0.0;    // what dense attention would have attended to
  double loaded = 0.0;     // keys that any query of a KV head's group attended to, over KV heads
  double available = 0.0;  // keys in the cache, over KV heads
  double n_rows = 0.0;     // (query head, query, layer)
  double bytes = 0.0;      // read to score, and keys and values
  double n_calls = 0.0;    // (layer, call)
  double longest = 0.0;    // keys in the cache at most

  /// Of one layer's selection for one call, but for the bytes.
  static CostTotals of(const Selection& selection, Index n_q, Index n_kv, TokenRange call);
  /// Of every visible key.
  static CostTotals of_dense(Index n_q, Index n_kv, TokenRange call);
  /// Of lists that are not here, but were counted.
  static CostTotals of_counts(const ListCounts& counts, TokenRange call);
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
  /// By Phase: of the layers where the method answers (those that it leaves dense are left out, as
  /// in the papers' KV reductions), and of all, which a comparison at equal cost meets.
  std::array<CostTotals, 3> kept, cost;
  LiveTimes times;

  const CostTotals& of(Phase phase) const { return kept[static_cast<std::size_t>(phase)]; }
  const CostTotals& cost_of(Phase phase) const { return cost[static_cast<std::size_t>(phase)]; }
  /// One layer in one call of `phase`. is_own: the method answered, and did not leave the layer
  /// dense; score_bytes: read to choose.
  void add(Phase phase, CostTotals here, const AttentionShape& shape, bool is_own,
           double score_bytes);
  /// All phases together.
  CostTotals all() const;
  CostTotals all_costs() const;
};

}  // namespace kvscope
