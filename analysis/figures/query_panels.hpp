// Words and marks of QuoKA's figures 2b and 2c, which figure kinds draw from results, the explorer
// from what it has computed.
#pragma once

#include <string>

#include "analysis/kinds/query_scores.hpp"
#include "analysis/plot/figure.hpp"

namespace kvscope::figures {

/// "S_q = −cos(q, M_Q)" in the mean's words.
std::string s_q_label(QuerySpan span);

/// "PC1 (20 % of the variance)"; without a share where it is NaN.
std::string component_label(std::size_t component, double share);

/// The star of a mean query or key.
plot::Scatter mean_point(bool is_query, double x, double y);

}  // namespace kvscope::figures
