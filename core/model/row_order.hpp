// Where a file keeps the rows of a matrix whose rows the hub orders otherwise.
#pragma once

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Every `n_outer * n_inner * unit` rows are a table of units (`unit` rows each), which the hub has
/// outer by outer and the file inner by inner. 1 x 1: the orders are equal.
///
/// GGUF files of Llama keep the pairs that RoPE turns side by side, where the hub has first halves
/// and second halves of a head: {2, d_head / 2, 1}. Those of GPT-NeoX have all queries, all keys,
/// all values, where the hub has head after head: {n_heads, 3, d_head}.
struct RowOrder {
  Index n_outer = 1;
  Index n_inner = 1;
  Index unit = 1;

  bool is_same() const { return n_outer == 1 || n_inner == 1; }

  /// The place in the file of the hub's row `row`.
  Index stored(Index row) const {
    if (is_same()) return row;
    const Index span = n_outer * n_inner * unit;
    const Index of_unit = row % unit;
    const Index in_table = row % span / unit;
    const Index outer = in_table / n_inner;
    const Index inner = in_table % n_inner;
    return row - row % span + (inner * n_outer + outer) * unit + of_unit;
  }
};

}  // namespace kvscope
