#include "core/attention/rounded_scores.hpp"

#include <algorithm>
#include <limits>

namespace kvscope {

namespace {

/// A binary floating-point type without its encoding.
struct FloatFormat {
  int mantissa_bits;   // stored ones
  int least_exponent;  // of normal numbers; below it the step stays
  double largest;
};

FloatFormat format_of(ScoreType type) {
  switch (type) {
    case ScoreType::bf16:
      return {7, -126, 0x1.FEp127};
    case ScoreType::fp8:
      return {3, -6, 448.0};
    case ScoreType::f64:
    case ScoreType::f32:
      break;
  }
  return {23, -126, static_cast<double>(std::numeric_limits<float>::max())};
}

}  // namespace

double rounding_step(double score, ScoreType type) {
  if (type == ScoreType::f64 || !std::isfinite(score)) return 0.0;
  const FloatFormat format = format_of(type);
  const double size = std::min(std::abs(score), format.largest);
  const int exponent =
      size > 0.0 ? std::max(std::ilogb(size), format.least_exponent) : format.least_exponent;
  return std::ldexp(1.0, exponent - format.mantissa_bits);
}

double rounded_score(double score, ScoreType type) {
  if (type == ScoreType::f64 || !std::isfinite(score)) return score;
  const double largest = format_of(type).largest;
  const double step = rounding_step(score, type);
  return std::clamp(std::nearbyint(score / step) * step, -largest,
                    largest);  // the default mode: ties to even
}

double row_scale(std::span<const double> scores, ScoreType type) {
  if (type != ScoreType::fp8) return 1.0;
  double size = 0.0;
  for (const double score : scores) {
    if (std::isfinite(score)) size = std::max(size, std::abs(score));
  }
  if (size == 0.0) return 1.0;
  const double largest = format_of(type).largest;
  int exponent = std::ilogb(size) - std::ilogb(largest);
  if (std::ldexp(size, -exponent) > largest) ++exponent;
  return std::ldexp(1.0, exponent);
}

void round_scores(std::span<double> scores, ScoreType type) {
  if (type == ScoreType::f64) return;
  const double scale = row_scale(scores, type);
  for (double& score : scores) score = scale * rounded_score(score / scale, type);
}

}  // namespace kvscope
