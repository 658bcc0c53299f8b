#include "analysis/figures/query_panels.hpp"

#include <fmt/format.h>

#include <cmath>

namespace kvscope::figures {

std::string s_q_label(QuerySpan span) {
  return span == QuerySpan::prompt ? "$S_q$ = −cos($q$, $M_Q$)"
                                   : "$S_q$ = −cos($q$, mean of the chunk)";
}

std::string component_label(std::size_t component, double share) {
  return std::isnan(share)
             ? fmt::format("PC{}", component + 1)
             : fmt::format("PC{} ({:.0f} % of the variance)", component + 1, 100.0 * share);
}

plot::Scatter mean_point(bool is_query, double x, double y) {
  return {.label = is_query ? "mean query $M_Q$" : "mean key $M_K$",
          .tone = {is_query ? plot::Role::highlight : plot::Role::reference, 0},
          .x = {x},
          .y = {y},
          .size = is_query ? 1.9 : 1.4};
}

}  // namespace kvscope::figures
