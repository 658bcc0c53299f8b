// Deterministic top-k: by falling score, equal scores by rising index.
#pragma once

#include <span>
#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Indices of the k best scores, best first; fewer if fewer scores are above -inf (a score of -inf
/// means "not a candidate"). k < 1 gives none. O(n + k log k). Scores must not be NaN.
std::vector<Index> top_k(std::span<const double> scores, Index k);

/// The same positions in ascending order, O(n): nothing is ranked.
std::vector<Index> top_k_sorted_by_index(std::span<const double> scores, Index k);

/// How many scores come before `index` in that order: 0 for the best one.
Index rank_of(std::span<const double> scores, Index index);

/// Index of the largest score, the smallest one among equals; `scores` must not be empty.
Index arg_max(std::span<const double> scores);

}  // namespace kvscope
