// QuoKA's figures 2b and 2c: queries and keys along principal axes, S_q against the largest weight
// of a row, and the correlation of every head. The figure kinds geometry and query-scores draw
// them from results, the explorer of what it has computed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "analysis/kinds/query_scores.hpp"
#include "analysis/plot/figure.hpp"

namespace kvscope::figures {

/// "S_q = −cos(q, M_Q)" in the mean's words.
std::string s_q_label(QuerySpan span);

/// Queries of one head, in the same order.
struct QueryPoints {
  std::vector<double> s_q;
  std::vector<double> weight;  // largest of the row
  std::vector<double> pos;
  std::vector<std::size_t> row;  // of the result's arrays
};
/// The points, which are of rows and coloured by position, with Pearson's r and Spearman's rho of
/// S_q and the log of the weight in the title.
plot::Panel query_score_panel(QueryPoints points, QuerySpan span, Index layer, Index q_head,
                              double r, double rho);
/// Of `n` points. `left_out` says which keys and queries do not count.
std::string query_score_caption(std::size_t n, const std::string& left_out);

/// Layer x head, the one at (layer_slot, head_slot) boxed.
plot::Panel correlation_panel(std::span<const double> layers, std::span<const double> heads,
                              std::vector<float> values, std::string label,
                              std::string masked_label, Index layer_slot, Index head_slot);

/// "PC1 (20 % of the variance)"; without a share where it is NaN.
std::string component_label(std::size_t component, double share);

/// The star of a mean query or key.
plot::Scatter mean_point(bool is_query, double x, double y);

}  // namespace kvscope::figures
