#include "core/attention/nucleus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

constexpr double kPaperEps = 1e-6;
constexpr int kPaperIterations = 10;

double mass_at_least(std::span<const float> weights, double theta) {
  double mass = 0.0;
  for (const float a : weights)
    mass += static_cast<double>(a) >= theta ? static_cast<double>(a) : 0.0;
  return mass;
}

std::vector<Index> indices_at_least(std::span<const float> weights, double theta) {
  std::vector<Index> kept;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (static_cast<double>(weights[i]) >= theta) kept.push_back(static_cast<Index>(i));
  }
  return kept;
}

std::vector<Index> positive_indices(std::span<const float> weights) {
  std::vector<Index> kept;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0.0f) kept.push_back(static_cast<Index>(i));
  }
  return kept;
}

/// Algorithm 2 and its repair: bisection on the threshold itself.
std::vector<Index> by_bisection(std::span<const float> weights, double target, float largest,
                                NucleusMode mode) {
  double low = 0.0;
  double high = static_cast<double>(largest);
  double mid = 0.0;
  for (int i = 0; mode == NucleusMode::paper_eps ? high - low > kPaperEps : i < kPaperIterations;
       ++i) {
    mid = low + (high - low) / 2.0;
    if (mass_at_least(weights, mid) < target) {
      high = mid;
    } else {
      low = mid;
    }
  }
  return indices_at_least(weights, mode == NucleusMode::safe_low ? low : mid);
}

/// The smallest set. Non-negative floats are ordered as their bit patterns, so at most 31 halvings
/// of the pattern's range find the threshold; weights that leave the range are never looked at
/// again.
std::vector<Index> smallest_set(std::span<const float> weights, double target, float largest) {
  // invariant: the weights of pattern >= high hold `mass_above` < target, those >= low reach it
  std::uint32_t low = 0;
  std::uint32_t high = std::bit_cast<std::uint32_t>(largest) + 1;
  double mass_above = 0.0;
  std::vector<float> inside(weights.begin(), weights.end());
  std::vector<float> upper;
  while (high - low > 1) {
    const std::uint32_t mid = low + (high - low) / 2;
    upper.clear();
    std::size_t n_lower = 0;
    double mass = 0.0;
    for (const float a : inside) {
      if (std::bit_cast<std::uint32_t>(a) >= mid) {
        upper.push_back(a);
        mass += static_cast<double>(a);
      } else {
        inside[n_lower++] = a;
      }
    }
    if (mass_above + mass >= target) {
      low = mid;
      inside.swap(upper);
    } else {
      high = mid;
      mass_above += mass;
      inside.resize(n_lower);
    }
  }

  const float threshold = std::bit_cast<float>(low);
  double mass = 0.0;
  for (const float a : weights) mass += a > threshold ? static_cast<double>(a) : 0.0;
  std::vector<Index> kept;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const bool is_tied = weights[i] == threshold && threshold > 0.0f && mass < target;
    if (is_tied) mass += static_cast<double>(threshold);
    if (is_tied || weights[i] > threshold) kept.push_back(static_cast<Index>(i));
  }
  return kept;
}

}  // namespace

std::vector<Index> nucleus(std::span<const float> weights, double p, NucleusMode mode) {
  if (!(p > 0.0)) throw ConfigError(fmt::format("nucleus: expected a share p > 0, found {}", p));
  if (weights.empty()) return {};
  const float largest = *std::max_element(weights.begin(), weights.end());
  if (!(largest > 0.0f)) return {};
  if (p >= 1.0) return positive_indices(weights);
  const double target = p * mass_at_least(weights, 0.0);
  return mode == NucleusMode::exact ? smallest_set(weights, target, largest)
                                    : by_bisection(weights, target, largest, mode);
}

}  // namespace kvscope
