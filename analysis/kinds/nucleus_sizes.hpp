// How many keys hold the attention: nucleus sizes per layer and head, and the smallest budgets that
// keep a target share of it.
//
// The nucleus of a row for a share p is the smallest set of keys whose exact attention is at least
// p; an oracle top-k keeps that much from k = nucleus size on. So "the smallest budget of a row" is
// its nucleus size at the target mass, and what varies is who must share it: per row (mean, p95,
// max over rows and heads), or one k for all, chosen so that the mean kept mass reaches the target.
#pragma once

#include <optional>
#include <vector>

#include "analysis/base/analysis.hpp"
#include "analysis/kinds/query_page_map.hpp"

namespace kvscope {

struct NucleusPlan {
  std::vector<Index> row_pos;  // measured positions, ascending
  std::vector<Index> q_heads;  // measured heads, ascending
  std::vector<double> shares;  // the p's, each in (0, 1]
  double target_mass = 0.99;   // in (0, 1]
  Index min_visible = 1;       // rows that see fewer keys are left out (of the map they are not)
};

/// Mean, quantiles and maximum of a number of keys over rows; NaN without rows.
struct KeyCounts {
  double mean = 0.0;
  double p50 = 0.0;
  double p95 = 0.0;
  double max = 0.0;
};

/// Bins of nucleus sizes: bin i counts sizes in [2^i, 2^(i+1)).
Index n_size_bins(Index n_tokens);

/// One layer. Heads in the order of the plan.
struct LayerNucleus {
  Index n_rows = 0;                       // rows that counted, per head
  std::vector<KeyCounts> sizes;           // [n_heads, n_shares]
  std::vector<double> size_share;         // [n_heads, n_shares] mean of size / visible keys
  std::vector<std::int64_t> size_counts;  // [n_heads, n_shares, n_bins]
  std::vector<KeyCounts> head_budget;     // [n_heads] smallest k per row for the target mass
  KeyCounts budget;                       // the same over all heads
  /// gains[k - 1]: what the k-th best key adds, summed over rows and heads, [last position + 1].
  std::vector<double> gains;
};

/// The smallest k with sum(gains[0..k)) >= target_mass * sum(gains): one budget for all rows and
/// heads behind `gains`, by mean mass. Empty without rows.
std::optional<Index> shared_budget(std::span<const double> gains, double target_mass);

/// Measures one layer; adds every row to `map` on the way. Exact rows in f64, 16 at a time per
/// worker, each sorted once; besides them an int per row, head and share, and `gains`.
LayerNucleus measure_nucleus(const TraceSource& trace, Index layer, const NucleusPlan& plan,
                             ScoreRowLoop& loop, QueryPageMap& map);

}  // namespace kvscope
