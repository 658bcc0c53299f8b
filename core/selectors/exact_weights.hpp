// Methods that see the exact attention of every row, for comparison: per row and query head a list
// by its weights.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/selectors/selector.hpp"

namespace kvscope {

/// The exact weights of one row.
struct ExactRow {
  Index kv_head = 0;
  TokenRange visible;
  std::span<const float> weights;  // [visible.size()], rounded to 32 bits
};

/// Positions within the row's visible keys, ascending, that selection number `index` keeps.
using PickByWeights = std::function<std::vector<Index>(const ExactRow& row, std::size_t index)>;

/// Selections, `n_selections` of them, with a list per row and query head.
std::vector<Selection> select_by_exact_weights(const SelectCall& call, std::size_t n_selections,
                                               const PickByWeights& pick);

}  // namespace kvscope
