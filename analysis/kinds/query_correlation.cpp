#include "analysis/kinds/query_correlation.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/base/statistics.hpp"

namespace kvscope {

QueryCorrelation correlate_queries(std::span<const double> s_q, std::span<const double> log_weight,
                                   std::span<const double> position) {
  std::vector<double> weight(log_weight.size());
  std::transform(log_weight.begin(), log_weight.end(), weight.begin(),
                 [](double log) { return std::exp(log); });
  QueryCorrelation result;
  result.value = {pearson(s_q, weight), pearson(s_q, log_weight), spearman(s_q, log_weight),
                  partial_correlation(s_q, log_weight, position),
                  partial_spearman(s_q, log_weight, position)};
  return result;
}

}  // namespace kvscope
