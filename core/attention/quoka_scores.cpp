#include "core/attention/quoka_scores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/attention/topk.hpp"
#include "core/base/error.hpp"

namespace kvscope {

namespace {

/// 1 / max(norm, eps): what turns a vector into its unit vector, and zero into zero.
double unit_factor(double norm, double eps) {
  return 1.0 / std::max(norm, eps);
}

std::vector<double> mean_over_heads(const std::vector<std::vector<double>>& cosines) {
  std::vector<double> mean(cosines.front().size(), 0.0);
  for (const auto& head : cosines) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += head[i];
  }
  for (double& value : mean) value /= static_cast<double>(cosines.size());
  return mean;
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

std::vector<Index> quoka_pick(std::span<const double> cosines, Index n_queries) {
  if (static_cast<Index>(cosines.size()) <= n_queries) {
    std::vector<Index> all(cosines.size());
    std::iota(all.begin(), all.end(), Index{0});
    return all;
  }
  std::vector<double> s_q(cosines.size());
  std::transform(cosines.begin(), cosines.end(), s_q.begin(), [](double c) { return -c; });
  return top_k(s_q, n_queries);
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

QuokaQueries quoka_select_queries(std::span<const TensorView<const float>> q,
                                  const QuokaScoring& scoring) {
  if (q.empty() || q[0].dim(0) < 1 || scoring.n_queries < 1) {
    throw ConfigError(fmt::format("quoka: {} heads and {} queries per chunk select nothing",
                                  q.size(), scoring.n_queries));
  }
  QuokaQueries out;
  for (const auto& head : q) {
    const auto mean = quoka_mean_query(head, scoring.mean, scoring.eps);
    out.has_zero_mean = out.has_zero_mean || norm_of(mean) <= scoring.eps;
    out.cosines.push_back(quoka_cosines(head, mean, scoring.eps));
  }

  if (scoring.pairing == QuokaPairing::shared_tokens) {
    out.picks.assign(q.size(), quoka_pick(mean_over_heads(out.cosines), scoring.n_queries));
  } else {
    for (const auto& cosines : out.cosines) {
      out.picks.push_back(quoka_pick(cosines, scoring.n_queries));
      if (scoring.pairing == QuokaPairing::position_sorted) {
        std::sort(out.picks.back().begin(), out.picks.back().end());
      }
    }
  }

  out.mean_unit = quoka_slot_means(q, out.picks, /*unit=*/true, scoring.eps);
  return out;
}

std::vector<double> quoka_key_scores(const QuokaQueries& queries, const KeyTable& unit_keys,
                                     TokenRange candidates, std::span<const Index> last_visible,
                                     ScoreRows& scratch) {
  std::vector<double> best(static_cast<std::size_t>(candidates.size()),
                           -std::numeric_limits<double>::infinity());
  if (candidates.size() == 0) return best;
  const Index n_slots = queries.mean_unit.dim(0);
  scratch.compute(queries.mean_unit.flat(), n_slots, unit_keys, candidates);
  for (Index slot = 0; slot < n_slots; ++slot) {
    TokenRange scored = candidates;
    if (!last_visible.empty()) {
      const Index end = last_visible[static_cast<std::size_t>(slot)] + 1;
      scored.end = std::clamp(end, candidates.begin, candidates.end);
    }
    const auto row = scratch.row(slot, scored);
    for (std::size_t t = 0; t < row.size(); ++t) best[t] = std::max(best[t], row[t]);
  }
  return best;
}

}  // namespace kvscope
