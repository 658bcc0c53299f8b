#include "analysis/base/replay_means.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/base/statistics.hpp"

namespace kvscope {

std::vector<double> row_weights(const LayerReplay& replay) {
  std::vector<double> weights;
  for (std::size_t c = 0; c < replay.calls.size(); ++c)
    weights.push_back(static_cast<double>(replay.row_begin[c + 1] - replay.row_begin[c]));
  if (std::ranges::adjacent_find(weights, std::ranges::not_equal_to{}) == weights.end())
    weights.clear();
  return weights;
}

double weighted_mean(std::span<const double> values, std::span<const double> weights) {
  if (weights.empty()) return mean(values);
  double sum = 0.0;
  double total = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    sum += weights[i % weights.size()] * values[i];
    total += weights[i % weights.size()];
  }
  return sum / total;
}

double mean_of(const LayerReplay& replay, const PairReplay& pair, ReplayMetric metric,
               std::size_t first, std::size_t last) {
  const std::size_t n_calls = replay.calls.size();
  const std::size_t end = std::min(last, replay.q_heads.size());
  const std::span<const double> values(pair.of(metric).data() + first * n_calls,
                                       (end - first) * n_calls);
  return metric <= ReplayMetric::forced_share ? weighted_mean(values, row_weights(replay))
                                              : mean(values);
}

}  // namespace kvscope
