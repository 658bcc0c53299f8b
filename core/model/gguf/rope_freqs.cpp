#include "core/model/gguf/rope_freqs.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvscope {

namespace {

// Positions in a full turn of pair i.
double wavelength(std::size_t i, double theta, Index d_head) {
  return 2.0 * std::numbers::pi *
         std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(d_head));
}

// As transformers computes it: by how much the angle is divided.
double divisor(const RopeConfig& rope, double length) {
  const auto original = static_cast<double>(rope.original_max_positions);
  if (length < original / rope.high_freq_factor) return 1.0;
  if (length > original / rope.low_freq_factor) return rope.factor;
  const double smooth =
      (original / length - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return 1.0 / ((1.0 - smooth) / rope.factor + smooth);
}

}  // namespace

std::optional<RopeConfig> llama3_scaling(std::span<const float> factors, double theta,
                                         Index d_head) {
  RopeConfig rope;
  rope.theta = theta;
  if (factors.empty()) return std::nullopt;
  rope.factor = *std::max_element(factors.begin(), factors.end());
  if (!(rope.factor >= 1.0) || !std::isfinite(rope.factor)) return std::nullopt;
  rope.kind = RopeConfig::Kind::llama3;
  // The context length before scaling follows from any pair between the fast and the slow ones; if
  // there is none, from where the slow ones begin.
  double original = 0.0;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double length = wavelength(i, theta, d_head);
    const double f = factors[i];
    if (f >= 0.9999 * rope.factor) {
      if (original == 0.0) original = 0.999 * length;
      break;
    }
    if (f <= 1.0001) continue;
    const double smooth = (1.0 / f - 1.0 / rope.factor) / (1.0 - 1.0 / rope.factor);
    original =
        length * (smooth * (rope.high_freq_factor - rope.low_freq_factor) + rope.low_freq_factor);
  }
  if (!(original >= 1.0 && original < 1e9)) original = 1.0;
  rope.original_max_positions = static_cast<Index>(std::llround(original));
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double expected = divisor(rope, wavelength(i, theta, d_head));
    if (std::abs(factors[i] - expected) > 1e-4 * expected) return std::nullopt;
  }
  return rope;
}

}  // namespace kvscope
