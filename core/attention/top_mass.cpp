#include "core/attention/top_mass.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/base/error.hpp"

namespace kvscope {

TopMass::TopMass(std::span<double> weights) : masses_(weights) {
  std::sort(weights.begin(), weights.end(), std::greater<>());
  n_positive_ =
      std::lower_bound(weights.begin(), weights.end(), 0.0, std::greater<>()) - weights.begin();
  std::partial_sum(weights.begin(), weights.end(), weights.begin());
}

double TopMass::mass(Index k) const {
  if (k < 1 || masses_.empty()) return 0.0;
  return masses_[static_cast<std::size_t>(std::min(k, n_weights()) - 1)];
}

Index TopMass::keys_for(double p) const {
  if (!(p > 0.0)) throw ConfigError("nucleus: expected a share p > 0, found {}", p);
  if (n_positive_ == 0) return 0;
  if (p >= 1.0) return n_positive_;
  const double target = p * masses_.back();
  return std::lower_bound(masses_.begin(), masses_.end(), target) - masses_.begin() + 1;
}

}  // namespace kvscope
