#include "core/base/rng.hpp"

#include <cmath>
#include <numbers>

namespace kvscope {

namespace {

/// Bijective on 64 bits; every input bit changes about half of the output bits (finaliser of
/// SplitMix64: Steele, Lea and Flood, OOPSLA 2014, with the constants of Stafford's variant 13).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;  // odd, 2^64 / golden ratio

}  // namespace

CounterRng::CounterRng(std::initializer_list<std::uint64_t> name)
    : key_(mixed(name.size() + kGolden)) {
  for (const std::uint64_t word : name) key_ = mixed(key_ * kGolden + mixed(word + kGolden));
}

std::uint64_t CounterRng::bits(std::uint64_t counter) const {
  return mixed(mixed(key_ + counter * kGolden) ^ key_);
}

double CounterRng::uniform(std::uint64_t counter) const {
  return static_cast<double>(bits(counter) >> 11) * 0x1.0p-53;
}

double CounterRng::normal(std::uint64_t counter) const {
  const double radius = std::sqrt(-2.0 * std::log1p(-uniform(2 * counter)));
  return radius * std::cos(2.0 * std::numbers::pi * uniform(2 * counter + 1));
}

}  // namespace kvscope
