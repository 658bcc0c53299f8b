#include "traces/verify_lse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/attention/key_kernels.hpp"

namespace kvscope {

namespace {

constexpr double kLeastRounding = 1e-4;  // nat; below it, the sums of a kernel are as inexact
constexpr double kFit = 0.1;             // of the rounding: what only unrounded rows keep to
constexpr double kShareThatFits = 0.4;   // by chance 0.08 of rounded rows do
constexpr std::ptrdiff_t kEnoughRows = 40;
constexpr double kOfKernels = 1e-3;  // nat; what sums in another order may differ by, generously

/// Half a unit in the last place of x, squared, over three. By bits, since it is asked of every
/// element of a cache: a float's exponent alone is the power of two below it.
struct RoundingVariance {
  explicit RoundingVariance(DType dtype)
      : least(std::ldexp(1.0F, dtype == DType::f16 ? -14 : -126)),
        half_unit(std::ldexp(1.0F, dtype == DType::f16 ? -11 : -8)) {}
  float operator()(float x) const {
    const float power = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7F800000U);
    const float u = std::max(power, least) * half_unit;
    return x == 0.0F ? 0.0F : u * u / 3.0F;
  }
  float least, half_unit;
};

double error_of(const LseRow& row) {
  return std::fabs(row.recorded - row.recomputed);
}

}  // namespace

Tensor<float> rounding_variances(TensorView<const float> x, DType dtype) {
  Tensor<float> out(x.shape());
  const RoundingVariance variance(dtype);
  for (Index i = 0; i < x.dim(0); ++i)
    std::ranges::transform(x.row(i), out.view().row(i).begin(), variance);
  return out;
}

double rounding_of_lse(std::span<const float> q, TensorView<const float> keys,
                       TensorView<const float> roundings, std::span<const double> prob,
                       double scale, DType dtype) {
  std::vector<double> mean(q.size(), 0.0), spread(q.size(), 0.0), squares(prob.size());
  std::ranges::transform(prob, squares.begin(), [](double p) { return p * p; });
  add_weighted_rows(prob, keys, mean);
  add_weighted_rows(squares, roundings, spread);
  const RoundingVariance variance_of(dtype);
  double variance = 0;
  for (std::size_t c = 0; c < q.size(); ++c) {
    variance += static_cast<double>(q[c]) * q[c] * spread[c];
    variance += mean[c] * mean[c] * static_cast<double>(variance_of(q[c]));
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
        enum_name(dtype)));
  }
  return sentences;
}

}  // namespace kvscope
