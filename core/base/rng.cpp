#include "core/base/rng.hpp"

#include <cmath>
#include <numbers>

#include "core/base/splitmix64.hpp"

namespace kvscope {

CounterRng::CounterRng(std::initializer_list<std::uint64_t> name)
    : key_(splitmix64_mix(name.size() + kSplitMix64Step)) {
  for (const std::uint64_t word : name)
    key_ = splitmix64_mix(key_ * kSplitMix64Step + splitmix64_mix(word + kSplitMix64Step));
}

std::uint64_t CounterRng::bits(std::uint64_t counter) const {
  return splitmix64_mix(splitmix64_mix(key_ + counter * kSplitMix64Step) ^ key_);
}

double CounterRng::uniform(std::uint64_t counter) const {
  return static_cast<double>(bits(counter) >> 11) * 0x1.0p-53;
}

double CounterRng::normal(std::uint64_t counter) const {
  const double radius = std::sqrt(-2.0 * std::log1p(-uniform(2 * counter)));
  return radius * std::cos(2.0 * std::numbers::pi * uniform(2 * counter + 1));
}

}  // namespace kvscope
