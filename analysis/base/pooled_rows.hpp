// Softmax rows pooled into the cells of an attention map, a row of cells at a time.
#pragma once

#include <span>
#include <vector>

#include "core/base/fields.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// What a cell shows of the weights that fall into it.
enum class MapPooling {
  max,   // the largest: thin lines stay visible
  mean,  // the mean over the visible pairs
};

/// Rows are pooled side by side and joined in order: the same sums for any number of threads.
class PooledRows {
 public:
  /// Room for `n_rows` rows of a context that `n_cells` cells of `block` keys cover: 16 bytes a
  /// cell and row.
  PooledRows(Index n_rows, Index n_cells, Index block, MapPooling pooling);

  void clear();
  /// Row `i`: the weights of its visible keys. Safe from several threads for different rows.
  void put(Index i, std::span<const double> weights, TokenRange visible);
  /// The rows [first, last) as one row of cells, [n_cells]; NaN where none of them sees a key.
  void join(Index first, Index last, std::span<float> cells) const;

 private:
  std::size_t width_;
  Index block_;
  MapPooling pooling_;
  std::vector<double> values_;  // [n_rows, n_cells] sums or maxima
  std::vector<double> counts_;  // [n_rows, n_cells] visible keys
};

}  // namespace kvscope
