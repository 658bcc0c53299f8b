// One budget of a layer divided over its KV heads by what their keys score (Ada-KV, arXiv
// 2407.11550).
#pragma once

#include <span>
#include <vector>

#include "core/selectors/eviction.hpp"

namespace kvscope {

struct BudgetDivision {
  /// counts, the official code: each head has its number of the layer's best keys, shrunk towards
  /// the floor, rounded by the largest remainders. safeguard, kvpress: each head's best keys up
  /// to the floor are safe, the rest competes.
  enum class Way { counts, safeguard };
  Way way = Way::counts;
  double floor = 0.2;      // share of an even division that every head gets
  bool normalize = false;  // a head's scores count by the share that an even budget would hold
};

/// How many contested keys each head keeps: together with what is safe at most one `budget` per
/// head on the average. Equal scores: lowest position, then lowest head.
std::vector<Index> divide_budget(Index budget, std::span<const Contest> heads,
                                 const BudgetDivision& rule);

}  // namespace kvscope
