// What a live run counted: keys attended to and loaded in sparse layers, and where the time went.
#pragma once

#include <array>
#include <vector>

#include "core/selectors/selector.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// Sums over the calls of one phase in the layers where the method answers (its dense layers and
/// sliding-window layers are left out, as in the papers' KV reductions).
struct KeptTotals {
  std::vector<double> attended;  // [n_q] keys over all queries
  std::vector<double> visible;   // [n_q] what dense attention would have attended to
  std::vector<double>
      loaded;  // [n_kv] keys that any query of the head's group attended to, per call
  std::vector<double> available;  // [n_kv] keys in the cache, per call
  double n_calls = 0.0;           // (layer, call) pairs counted

  /// Adds one layer's answer to one call.
  void add(const Selection& selection, Index n_q, Index n_kv, TokenRange call);
  /// Adds another run's totals.
  void add(const KeptTotals& other);
  /// 1 - attended / visible, a ratio of totals over query heads; 0 if nothing was counted.
  double reduction() const;
  /// Keys attended to per query, mean; 0 if nothing was counted.
  double mean_kept(double n_queries) const;
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
  LiveTimes times;
  double n_sparse_queries = 0.0;  // (query, layer) pairs behind `kept`, all phases

  KeptTotals& of(Phase phase) { return kept[static_cast<std::size_t>(phase)]; }
  const KeptTotals& of(Phase phase) const { return kept[static_cast<std::size_t>(phase)]; }
  /// All phases together.
  KeptTotals all() const;
};

}  // namespace kvscope
