#include "core/attention/layer_divergence.hpp"

#include <algorithm>

#include "core/attention/row_kernels.hpp"

namespace kvscope {

void normalise_row(std::span<double> row) {
  const double sum = sum_of(row);
  if (!(sum > 0.0)) return;
  for (double& value : row) value /= sum;
}

namespace {

/// a' = (a + eps) / (1 + L eps) for each of the row's L entries.
void smooth_row(std::span<double> row, double eps) {
  const double factor = 1.0 / (1.0 + static_cast<double>(row.size()) * eps);
  for (double& value : row) value = (value + eps) * factor;
}

}  // namespace

double row_divergence(std::span<const double> p, std::span<const double> log_p,
                      std::span<const double> log_q, bool has_zeros) {
  if (!has_zeros) return std::max(0.0, dot_of(p, log_p) - dot_of(p, log_q));
  double sum = 0.0;
  for (std::size_t t = 0; t < p.size(); ++t) {
    if (p[t] > 0.0) sum += p[t] * (log_p[t] - log_q[t]);
  }
  return std::max(0.0, sum);
}

RowLogs::RowLogs(std::span<const std::span<const double>> rows, Smoothing how, double eps)
    : smoothing(how) {
  for (const auto& row : rows) {
    std::vector<double> p(row.begin(), row.end());
    const bool has_zero = std::find(p.begin(), p.end(), 0.0) != p.end();
    if (smoothing == Smoothing::always || (smoothing == Smoothing::when_zero && has_zero)) {
      smooth_row(p, eps);
      ++n_smoothed;
    }
    std::vector<double> log_p(p.size());
    log_row(p, log_p);
    prob.push_back(std::move(p));
    log_prob.push_back(std::move(log_p));
  }
}

void layer_divergences(const RowLogs& verifier, const RowLogs& draft, TensorView<double> out) {
  const bool has_zeros = verifier.smoothing == Smoothing::never;
  for (std::size_t i = 0; i < draft.prob.size(); ++i) {
    for (std::size_t j = 0; j < verifier.prob.size(); ++j) {
      out(static_cast<Index>(i), static_cast<Index>(j)) =
          row_divergence(verifier.prob[j], verifier.log_prob[j], draft.log_prob[i], has_zeros);
    }
  }
}

}  // namespace kvscope
