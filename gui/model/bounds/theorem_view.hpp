// Theorem B.1 on the rows of one head, as the panel shows it: the measured cosine of a key with its
// query beside the bounds on it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "analysis/figures/theorem_panel.hpp"
#include "analysis/theorem_b1.hpp"
#include "core/trace/source.hpp"
#include "gui/model/jobs/jobs.hpp"

namespace kvscope::gui {

using figures::is_upper;
using figures::kTheoremBounds;
using figures::title_of;

/// Proved: a violation would be a mistake of ours.
inline bool must_hold(TheoremBound bound) {
  return bound >= TheoremBound::jensen;
}

/// What decides the numbers.
struct TheoremRequest {
  Index layer = 0;
  Index q_head = 0;
  TheoremB1Options options;
  /// For keys of a cache.
  std::string key() const;
};

/// One bound over all rows.
struct TheoremColumn {
  std::vector<float> bound;            // [row]
  std::vector<std::uint8_t> violated;  // [row], 0 or 1
  Index violations = 0;
  double gap_mean = 0.0;  // how far the bound is from the cosine on its good side, mean over rows
};

/// Every measured row of one head; rows in which k* is the only visible key hold NaN.
struct TheoremRows {
  std::string trace;  // file name
  TheoremRequest request;
  std::vector<Index> query;                           // [row], ascending
  std::vector<Index> star;                            // [row], position of k*
  std::vector<float> cos;                             // [row], cos(k*, q)
  std::vector<float> weight;                          // [row], softmax weight of k*
  std::vector<float> log_odds;                        // [row]
  std::vector<float> norm_eff;                        // [row], N_eff
  std::vector<float> cos_mean_query;                  // [row], cos(M_Q, q)
  std::array<TheoremColumn, kTheoremBounds> columns;  // by TheoremBound
  Index n_stated = 0;                                 // rows that make a statement
  Index n_tokens = 0;

  std::size_t n_rows() const { return query.size(); }
  const TheoremColumn& column(TheoremBound bound) const {
    return columns[static_cast<std::size_t>(bound)];
  }
  /// What the bound is about: cos(k*, q), or cos(M_Q, q).
  const std::vector<float>& measured(TheoremBound bound) const {
    return is_upper(bound) ? cos_mean_query : cos;
  }
  /// The measured row nearest to a query; empty if there is none.
  std::optional<std::size_t> nearest(Index query_pos) const;
  std::size_t bytes() const;
};

/// analyze_theorem_b1 over one head. Throws what that throws.
TheoremRows theorem_rows(const TraceSource& trace, const TheoremRequest& request, JobContext& job);

}  // namespace kvscope::gui
