#include "core/attention/nucleus.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "core/base/error.hpp"

namespace kvscope {

std::vector<Index> indices_at_least(std::span<const float> weights, double theta) {
  std::vector<Index> kept;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (static_cast<double>(weights[i]) >= theta) kept.push_back(static_cast<Index>(i));
  }
  return kept;
}

namespace {

constexpr double kPaperEps = 1e-6;
constexpr int kPaperIterations = 10;

double mass_at_least(std::span<const float> weights, double theta) {
  double mass = 0.0;
  for (const float a : weights)
    mass += static_cast<double>(a) >= theta ? static_cast<double>(a) : 0.0;
  return mass;
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

/// Digits of the bit patterns of non-negative floats, which are ordered as these: highest first.
constexpr int kDigitBits[] = {11, 11, 9};
constexpr std::size_t kMostDigits = std::size_t{1} << 11;

/// The smallest weight of the smallest set: weights above it hold less than `target`, with it they
/// reach it. The pattern is found digit by digit: one pass sums the mass of each value of a digit,
/// and only weights that share the digit so far are looked at again. mass_of: that of the first
/// digit [kMostDigits], used up.
float smallest_kept(std::span<const float> weights, double target, std::span<double> mass_of) {
  std::vector<float> inside;
  std::span<const float> left = weights;
  double mass_above = 0.0;
  int shift = 31;
  for (const int bits : kDigitBits) {
    shift -= bits;
    const std::uint32_t mask = (1U << bits) - 1;
    const auto digit_of = [&](float x) {
      return (std::bit_cast<std::uint32_t>(x) >> shift) & mask;
    };
    if (left.data() != weights.data()) {
      std::fill(mass_of.begin(), mass_of.end(), 0.0);
      for (const float x : left) mass_of[digit_of(x)] += static_cast<double>(x);
    }
    std::uint32_t digit = mask;
    while (digit > 0 && mass_above + mass_of[digit] < target) mass_above += mass_of[digit--];
    std::vector<float> same(left.size() + 1);  // one more: written to, never counted
    std::size_t n_same = 0;
    for (const float x : left) {
      same[n_same] = x;
      n_same += digit_of(x) == digit ? 1 : 0;
    }
    same.resize(n_same);
    // Rounding of sums.
    if (same.empty()) return left.empty() ? 0.0f : *std::min_element(left.begin(), left.end());
    inside.swap(same);
    left = inside;
    if (shift == 0 || left.size() < 64) break;
  }
  std::sort(inside.begin(), inside.end(), std::greater<>());
  for (const float x : inside) {
    mass_above += static_cast<double>(x);
    if (mass_above >= target) return x;
  }
  return inside.back();
}

/// The smallest set that holds a share p; ties by rising index. Empty where no weight is above 0.
std::vector<Index> smallest_set(std::span<const float> weights, double p) {
  std::vector<double> mass_of(kMostDigits, 0.0);
  double total = 0.0;
  for (const float x : weights) {
    total += static_cast<double>(x);
    mass_of[std::bit_cast<std::uint32_t>(x) >> (31 - kDigitBits[0]) & (kMostDigits - 1)] +=
        static_cast<double>(x);
  }
  if (!(total > 0.0)) return {};
  const double target = p * total;
  const float threshold = smallest_kept(weights, target, mass_of);
  std::vector<Index> kept(weights.size() + 1);  // one more: written to, never counted
  std::size_t n_kept = 0, n_tied = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    kept[n_kept] = static_cast<Index>(i);
    n_kept += weights[i] >= threshold ? 1 : 0;
    n_tied += weights[i] == threshold ? 1 : 0;
  }
  kept.resize(n_kept);
  if (n_tied < 2 && threshold > 0.0f) return kept;
  double mass = 0.0;
  for (const float a : weights) mass += a > threshold ? static_cast<double>(a) : 0.0;
  std::erase_if(kept, [&](Index i) {
    if (weights[static_cast<std::size_t>(i)] > threshold) return false;
    const bool is_needed = threshold > 0.0f && mass < target;
    if (is_needed) mass += static_cast<double>(threshold);
    return !is_needed;
  });
  return kept;
}

}  // namespace

std::vector<Index> nucleus(std::span<const float> weights, double p, NucleusMode mode) {
  if (!(p > 0.0)) throw ConfigError("nucleus: expected a share p > 0, found {}", p);
  if (weights.empty()) return {};
  if (p >= 1.0) return indices_at_least(weights, std::numeric_limits<float>::denorm_min());
  if (mode == NucleusMode::exact) return smallest_set(weights, p);
  const float largest = *std::max_element(weights.begin(), weights.end());
  if (!(largest > 0.0f)) return {};
  return by_bisection(weights, p * mass_at_least(weights, 0.0), largest, mode);
}

}  // namespace kvscope
