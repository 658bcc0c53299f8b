// Products of one query with keys at listed positions, for methods that score a few scattered keys:
// the keys are copied side by side and read by the kernels of contiguous keys.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "core/attention/selection.hpp"
#include "core/base/raw_vector.hpp"
#include "core/selectors/key_dots.hpp"

namespace kvscope {

/// q . k(keys[i]) for each i; q [d_head], k [n_keys, d_head]. In the worker's precision; valid
/// until its next product.
inline std::span<double> listed_dots(KeyDots& dots, std::span<const double> q,
                                     TensorView<const float> k, std::span<const KeyPos> keys) {
  const auto d = static_cast<std::size_t>(k.dim(1));
  const auto n = static_cast<Index>(keys.size());
  if (n == 0) return {};
  RawVector<float> rows(keys.size() * d);
  for (std::size_t i = 0; i < keys.size(); ++i)
    std::copy_n(k.row(keys[i]).data(), d, rows.data() + i * d);
  dots.compute(q, 1, TensorView<const float>(rows.data(), Shape{n, k.dim(1)}), {0, n});
  return dots.row(0);
}

}  // namespace kvscope
