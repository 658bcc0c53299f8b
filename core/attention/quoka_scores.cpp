#include "core/attention/quoka_scores.hpp"

#include <algorithm>
#include <cassert>

#include "core/attention/score_rows.hpp"
#include "core/attention/topk.hpp"
#include "core/base/evenly_spaced.hpp"

namespace kvscope {

namespace {

/// 1 / max(norm, eps): what turns a vector into its unit vector, and zero into zero.
double unit_factor(double norm, double eps) {
  return 1.0 / std::max(norm, eps);
}

std::vector<double> mean_over_heads(std::span<const std::vector<double>> cosines) {
  std::vector<double> mean(cosines.front().size(), 0.0);
  for (const auto& head : cosines) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += head[i];
  }
  for (double& value : mean) value /= static_cast<double>(cosines.size());
  return mean;
}

/// The n_queries tokens of lowest cosine, lowest first; every token in order if there are no more
/// than that.
std::vector<Index> quoka_pick(std::span<const double> cosines, Index n_queries) {
  const auto n = static_cast<Index>(cosines.size());
  if (n <= n_queries) return all_in(0, n);
  std::vector<double> s_q(cosines.size());
  std::transform(cosines.begin(), cosines.end(), s_q.begin(), [](double c) { return -c; });
  return top_k(s_q, n_queries);
}

}  // namespace

std::vector<double> quoka_mean_query(TensorView<const float> q, QuokaMean mean, double eps) {
  const Index n_tok = q.dim(0);
  std::vector<double> out(static_cast<std::size_t>(q.dim(1)), 0.0);
  for (Index i = 0; i < n_tok; ++i) {
    const auto row = q.row(i);
    const double factor = mean == QuokaMean::unit ? unit_factor(norm_of(row), eps) : 1.0;
    for (std::size_t c = 0; c < out.size(); ++c) out[c] += factor * static_cast<double>(row[c]);
  }
  for (double& value : out) value /= static_cast<double>(n_tok);
  return out;
}

std::vector<double> quoka_cosines(TensorView<const float> q, std::span<const double> mean,
                                  double eps) {
  const double mean_factor = unit_factor(norm_of(mean), eps);
  std::vector<double> cosines(static_cast<std::size_t>(q.dim(0)));
  for (Index i = 0; i < q.dim(0); ++i) {
    const auto row = q.row(i);
    double dot = 0.0;
    for (std::size_t c = 0; c < row.size(); ++c) dot += static_cast<double>(row[c]) * mean[c];
    cosines[static_cast<std::size_t>(i)] = dot * mean_factor * unit_factor(norm_of(row), eps);
  }
  return cosines;
}

Tensor<double> quoka_slot_means(std::span<const TensorView<const float>> q,
                                std::span<const std::vector<Index>> picks, bool unit, double eps) {
  const auto n_slots = static_cast<Index>(picks[0].size());
  Tensor<double> means({n_slots, q[0].dim(1)});
  const double share = 1.0 / static_cast<double>(q.size());
  for (std::size_t head = 0; head < q.size(); ++head) {
    for (Index slot = 0; slot < n_slots; ++slot) {
      const auto row = q[head].row(picks[head][static_cast<std::size_t>(slot)]);
      const double factor = unit ? share * unit_factor(norm_of(row), eps) : share;
      const auto mean = means.view().row(slot);
      for (std::size_t c = 0; c < row.size(); ++c) mean[c] += factor * static_cast<double>(row[c]);
    }
  }
  return means;
}

QuokaCosines quoka_group_cosines(std::span<const TensorView<const float>> q, QuokaMean mean,
                                 double eps) {
  QuokaCosines out;
  for (const auto& head : q) {
    const auto mean_query = quoka_mean_query(head, mean, eps);
    out.has_zero_mean = out.has_zero_mean || norm_of(mean_query) <= eps;
    out.heads.push_back(quoka_cosines(head, mean_query, eps));
  }
  return out;
}

std::vector<std::vector<Index>> quoka_pick_slots(std::span<const std::vector<double>> cosines,
                                                 Index n_queries, QuokaPairing pairing) {
  assert(!cosines.empty() && n_queries >= 1);
  if (pairing == QuokaPairing::shared_tokens) {
    return std::vector(cosines.size(), quoka_pick(mean_over_heads(cosines), n_queries));
  }
  std::vector<std::vector<Index>> picks;
  for (const auto& head : cosines) {
    picks.push_back(quoka_pick(head, n_queries));
    if (pairing == QuokaPairing::position_sorted)
      std::sort(picks.back().begin(), picks.back().end());
  }
  return picks;
}

}  // namespace kvscope
