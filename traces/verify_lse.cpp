#include "traces/verify_lse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kvscope {

namespace {

constexpr double kLeastRounding = 1e-4;  // nat; below it, the sums of a kernel are as inexact
constexpr double kFit = 0.1;             // of the rounding: what only unrounded rows keep to
constexpr double kShareThatFits = 0.4;   // by chance 0.08 of rounded rows do
constexpr std::ptrdiff_t kEnoughRows = 40;
constexpr double kOfKernels = 1e-3;  // nat; what sums in another order may differ by, generously

/// Variance of the rounding of a stored element.
double rounding_variance(float x, DType dtype) {
  if (x == 0.0f) return 0.0;
  const bool half = dtype == DType::f16;
  const int exponent = std::max(std::ilogb(x), half ? -14 : -126);
  const double most = std::ldexp(1.0, exponent - (half ? 11 : 8));
  return most * most / 3;
}

double error_of(const LseRow& row) {
  return std::fabs(row.recorded - row.recomputed);
}

}  // namespace

double rounding_of_lse(std::span<const float> q, TensorView<const float> keys, Index first,
                       std::span<const double> prob, double scale, DType dtype) {
  if (dtype == DType::f32) return 0.0;  // of no interest beside the sums' own rounding
  std::vector<double> mean(q.size(), 0.0);
  double variance = 0;
  for (std::size_t j = 0; j < prob.size(); ++j) {
    const auto k = keys.row(first + static_cast<Index>(j));
    double of_key = 0;
    for (std::size_t c = 0; c < q.size(); ++c) {
      mean[c] += prob[j] * k[c];
      of_key += static_cast<double>(q[c]) * q[c] * rounding_variance(k[c], dtype);
    }
    variance += prob[j] * prob[j] * of_key;
  }
  for (std::size_t c = 0; c < q.size(); ++c) {
    variance += mean[c] * mean[c] * rounding_variance(q[c], dtype);
  }
  return std::fabs(scale) * std::sqrt(variance);
}

std::vector<std::string> rows_of_other_keys(std::span<const LseRow> rows, DType dtype) {
  std::vector<std::string> sentences;
  const auto tells = [](const LseRow& row) { return row.rounding >= kLeastRounding; };
  const auto fits = [&](const LseRow& row) {
    return tells(row) && error_of(row) < kFit * row.rounding;
  };
  const auto n_telling = std::count_if(rows.begin(), rows.end(), tells);
  const auto n_fitting = std::count_if(rows.begin(), rows.end(), fits);
  const double share = static_cast<double>(n_fitting) / static_cast<double>(n_telling);
  if (dtype == DType::f32 || n_telling < kEnoughRows || share < kShareThatFits) return sentences;
  for (const LseRow& row : rows) {
    const double allowed = kOfKernels + 1e-6 * std::fabs(row.recomputed);
    if (row.is_reported || error_of(row) <= allowed) continue;
    sentences.push_back(fmt::format(
        "/layers/{}: query head {}, row {}: lse is {:.6g}, recomputed from q and k {:.6g} (allowed "
        "difference {:.2g}): {:.0f} % of the rows agree better than values rounded to {} could, so "
        "this is no rounding; the row was computed with other keys than those stored (as when a "
        "model runs without a cache in 16 bits): record again with a cache, or in f32",
        row.layer, row.q_head, row.pos, row.recorded, row.recomputed, allowed, 100 * share,
        name_of(dtype)));
  }
  return sentences;
}

}  // namespace kvscope
