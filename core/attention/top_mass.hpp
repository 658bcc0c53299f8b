// The mass of the k largest weights of a row, for every k: what an oracle keeps with a budget, and
// which budget reaches a share.
#pragma once

#include <span>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Sorts once, answers for any k or p. In f64; the size of core/attention/nucleus.hpp's exact set,
/// which looks at f32 rows.
class TopMass {
 public:
  /// Takes over `weights` (>= 0, finite, any order): afterwards element k - 1 holds the mass of the
  /// k largest. The memory must outlive this object. O(n log n).
  explicit TopMass(std::span<double> weights);

  Index n_weights() const { return static_cast<Index>(masses_.size()); }
  /// Mass of the k largest weights; all of them if there are no more; 0 for k < 1.
  double mass(Index k) const;
  /// The smallest k with mass(k) >= p * mass(all); p >= 1 counts every weight > 0, as nucleus()
  /// does. 0 for a row without mass. Throws ConfigError if p <= 0.
  Index keys_for(double p) const;

 private:
  std::span<const double> masses_;
  Index n_positive_ = 0;
};

}  // namespace kvscope
