#include "core/model/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvscope {

namespace {

// YaRN (arXiv 2309.00071, section 3.2): pairs that turn more than beta_fast times within the
// original context keep their frequency, those that turn less than beta_slow times are divided by
// the factor, a ramp over the pairs between blends.
void stretch_by_yarn(const RopeConfig& rope, Index d_head, std::vector<float>& frequency) {
  const auto pair_that_turns = [&](double n_turns) {  // a real-valued pair index
    const double original = static_cast<double>(rope.original_max_positions);
    return static_cast<double>(d_head) * std::log(original / (n_turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = pair_that_turns(rope.beta_fast);
  double high = pair_that_turns(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(d_head - 1));
  if (low == high) high += 0.001;  // as the authors do: a step instead of a division by zero
  for (std::size_t i = 0; i < frequency.size(); ++i) {
    const float at =
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1.0f - std::clamp(at, 0.0f, 1.0f);
    const float stretched = static_cast<float>(static_cast<double>(frequency[i]) / rope.factor);
    frequency[i] = stretched * (1.0f - kept) + frequency[i] * kept;
  }
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& rope, Index d_head) {
  std::vector<float> frequency(static_cast<std::size_t>(d_head / 2));
  for (std::size_t i = 0; i < frequency.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(d_head);
    const float power = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    frequency[i] = 1.0f / power;
  }
  if (rope.kind == RopeConfig::Kind::linear) {
    for (float& f : frequency) f /= static_cast<float>(rope.factor);
  }
  if (rope.kind == RopeConfig::Kind::llama3) {
    const double original = static_cast<double>(rope.original_max_positions);
    const double longest_kept = original / rope.high_freq_factor;  // wavelengths below stay
    // Wavelengths above are divided.
    const double shortest_scaled = original / rope.low_freq_factor;
    for (float& f : frequency) {
      const double wavelength = 2.0 * std::numbers::pi / static_cast<double>(f);
      if (wavelength < longest_kept) continue;
      const double scaled = static_cast<double>(f) / rope.factor;
      if (wavelength > shortest_scaled) {
        f = static_cast<float>(scaled);
        continue;
      }
      const double smooth = (original / wavelength - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
      f = static_cast<float>((1.0 - smooth) * scaled + smooth * static_cast<double>(f));
    }
  }
  if (rope.kind == RopeConfig::Kind::yarn) stretch_by_yarn(rope, d_head, frequency);
  return frequency;
}

void rope_tables(std::span<const float> frequencies, float amplitude, Index pos_begin, Index n_tok,
                 Index lanes, float* cos, float* sin) {
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    for (Index lane = 0; lane < lanes; ++lane) {
      const Index pos = pos_begin + std::min(lane, n_tok - 1);
      const float angle = static_cast<float>(pos) * frequencies[i];  // rounded, see the header
      const std::size_t at = i * static_cast<std::size_t>(lanes) + static_cast<std::size_t>(lane);
      cos[at] = amplitude * static_cast<float>(std::cos(static_cast<double>(angle)));
      sin[at] = amplitude * static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

}  // namespace kvscope
