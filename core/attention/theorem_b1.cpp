#include "core/attention/theorem_b1.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "core/attention/row_kernels.hpp"

namespace kvscope {

namespace {

/// log(1 + e^x) without overflow or loss: -log(1 - w) for log-odds x.
double softplus(double x) {
  return x > 0.0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

/// A bound that divides by nothing says nothing.
double at_least_minus_one(double numerator, double denominator, double offset) {
  if (!(denominator > 0.0)) return -1.0;
  return std::max(-1.0, numerator / denominator + offset);
}

/// log(n / (n + 1)) - log(1 - w) from the log-odds x of w; accurate for w near 0 and near 1.
double theorem_b1_rho(Index n, double log_odds) {
  return softplus(log_odds) - std::log1p(1.0 / static_cast<double>(n));
}

}  // namespace

TheoremB1Row theorem_b1_row(std::span<const double> scores, Index star, double q_norm,
                            double star_norm, double max_norm, double scale) {
  assert(star >= 0 && star < static_cast<Index>(scores.size()));
  TheoremB1Row row;
  row.n = static_cast<Index>(scores.size()) - 1;
  if (row.n == 0) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    row.cos = row.weight = row.log_odds = row.norm_eff = nan;
    row.printed = row.repaired = row.jensen = row.worst = row.slack = nan;
    return row;
  }

  // log-odds from the others' own log-sum-exp: 1 - w never has to be formed
  const auto at = static_cast<std::size_t>(star);
  const auto before = scores.first(at);
  const auto after = scores.subspan(at + 1);
  const double s_star = scores[at];
  const double shift = std::max(max_of(before), max_of(after));
  const double lse_others =
      shift + std::log(exp_sums(before, shift).sum + exp_sums(after, shift).sum);
  const double n = static_cast<double>(row.n);
  const double mean_others = (sum_of(before) + sum_of(after)) / n;
  row.log_odds = s_star - lse_others;
  row.weight = 1.0 / (1.0 + std::exp(-row.log_odds));

  // the theorem's unit query and bare products: keys scaled by |q| * scale
  const double factor = q_norm * scale;
  const double star_eff = factor * star_norm;
  row.norm_eff = factor * max_norm;
  row.cos = star_eff > 0.0 ? std::clamp(s_star / star_eff, -1.0, 1.0) : 0.0;

  const double rho = theorem_b1_rho(row.n, row.log_odds);
  const double tau = std::log(n) + row.log_odds;
  row.printed = at_least_minus_one(rho, 2.0 * row.norm_eff * row.norm_eff, -1.0);
  row.repaired = at_least_minus_one(rho, row.norm_eff, -1.0);
  row.jensen = at_least_minus_one(tau + mean_others, star_eff, 0.0);
  row.worst = tau >= row.norm_eff ? at_least_minus_one(tau, row.norm_eff, -1.0)
                                  : at_least_minus_one(tau - row.norm_eff, star_eff, 0.0);
  const double rounding = 32.0 * std::numeric_limits<double>::epsilon();
  row.slack =
      star_eff > 0.0
          ? rounding * (1.0 + (row.norm_eff + std::abs(lse_others) + std::log(n)) / star_eff)
          : 0.0;
  return row;
}

MainTextBound main_text_bound(double alpha, double beta) {
  const double gap = alpha - beta;
  const double rounding = 16.0 * std::numeric_limits<double>::epsilon();
  const double sine_a = std::max(0.0, 1.0 - alpha * alpha);
  const double sine_b = std::max(0.0, 1.0 - beta * beta);
  const double sines = std::sqrt(sine_a * sine_b);
  const double widest = std::sqrt((sine_a + rounding) * (sine_b + rounding));
  return {1.0 - 0.5 * gap * gap, alpha * beta + sines, widest - sines + rounding};
}

}  // namespace kvscope
