// Dot products of a few query vectors with many keys as they lie in the cache, without a copy of
// the cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/tensor.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// Precision of products and sums. Results are handed out as doubles either way.
enum class ScorePrecision { f64, f32 };

/// Keys are transposed in blocks that stay in the processor's cache, or read in place for one or
/// two queries; memory is one row of doubles per query. Keep one and reuse it. Keys with equal
/// elements get bit-equal products.
class KeyDots {
 public:
  void set_precision(ScorePrecision precision) { precision_ = precision; }

  /// Products of q [n_rows, d_head] with the keys in `range` of k [n_keys, d_head].
  void compute(std::span<const double> q, Index n_rows, TensorView<const float> k,
               TokenRange range);

  /// The same for one query and the keys at `keys`, in any order: row(0) has one product per entry,
  /// bit by bit that of compute(). Reads them where they lie, keys that follow each other together.
  void compute_listed(std::span<const double> q, TensorView<const float> k,
                      std::span<const std::int32_t> keys);

  /// out[t] = the largest product of key range.begin + t with those rows r of q [n_rows,
  /// d_head] for which the key lies before row_end[r]; `none` where there is no such
  /// row. out [range.size()].
  void compute_largest(std::span<const double> q, Index n_rows, TensorView<const float> k,
                       TokenRange range, std::span<const Index> row_end, double none,
                       std::span<double> out);

  /// Memory for products that come from elsewhere, [n_rows, n_keys], as row() gives them out.
  std::span<double> take(Index n_rows, Index n_keys);

  /// Products of row r, [range.size()]; valid until the next compute, and free to be overwritten.
  std::span<double> row(Index r) {
    return {dots_.data() + r * stride_, static_cast<std::size_t>(n_keys_)};
  }

 private:
  ScorePrecision precision_ = ScorePrecision::f64;
  Index n_keys_ = 0;
  Index stride_ = 0;
  std::vector<double> dots_;
  std::vector<double> panels_;
  std::vector<float> q_f32_;  // queries, as rows or as lanes
  std::vector<float> block_;  // products of a block of keys, [keys, lanes]
};

}  // namespace kvscope
