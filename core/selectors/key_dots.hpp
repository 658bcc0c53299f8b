// Dot products of a few query vectors with many keys as they lie in the cache, without a copy of
// the cache.
#pragma once

#include <span>
#include <vector>

#include "core/tensor/tensor.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// Keys are transposed in blocks that stay in the processor's cache, or read in place for one or
/// two queries; memory is one row of doubles per query. Keep one and reuse it. Keys with equal
/// elements get bit-equal products.
class KeyDots {
 public:
  /// Products of q [n_rows, width] with the keys in `range` of k [n_keys, d_head]. `channels` names
  /// the key channels that belong to q's elements, ascending; empty means all (width = d_head).
  void compute(std::span<const double> q, Index n_rows, TensorView<const float> k, TokenRange range,
               std::span<const Index> channels = {});

  /// Products of row r, [range.size()]; valid until the next compute, and free to be overwritten.
  std::span<double> row(Index r) {
    return {dots_.data() + r * stride_, static_cast<std::size_t>(n_keys_)};
  }

 private:
  void compute_in_place(std::span<const double> q, Index n_rows, TensorView<const float> k,
                        TokenRange range, std::span<const Index> channels);
  Index n_keys_ = 0;
  Index stride_ = 0;
  std::vector<double> dots_;
  std::vector<double> panels_;
};

/// 1 / max(norm, eps) of the keys in `range` of k [n_keys, d_head].
std::vector<double> inverse_norms(TensorView<const float> k, TokenRange range, double eps);

}  // namespace kvscope
