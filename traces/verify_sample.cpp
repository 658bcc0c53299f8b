#include "traces/verify_sample.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/splitmix64.hpp"

namespace kvscope {

VerifyBounds VerifyBounds::part_of(Index n) const {
  VerifyBounds part = *this;
  const Clock::time_point now = Clock::now();
  if (end != Clock::time_point::max() && end > now)
    part.end = now + (end - now) / std::max<Index>(n, 1);
  return part;
}

SampledVisits::SampledVisits(Index n, const VerifyBounds& bounds, std::uint64_t seed)
    : bounds_(bounds), order_(static_cast<std::size_t>(n)) {
  std::iota(order_.begin(), order_.end(), Index{0});
  most_ = n;
  if (bounds.is_all()) return;
  most_ = std::min(n, static_cast<Index>(std::ceil(bounds.share * static_cast<double>(n))));
  std::uint64_t state = seed;
  for (std::size_t i = order_.size(); i > 1; --i) {
    state += kSplitMix64Step;
    std::swap(order_[i - 1], order_[splitmix64_mix(state) % i]);
  }
}

Index SampledVisits::next() {
  if (taken_ >= most_ || (taken_ > 0 && bounds_.is_over())) return -1;
  return order_[static_cast<std::size_t>(taken_++)];
}

}  // namespace kvscope
