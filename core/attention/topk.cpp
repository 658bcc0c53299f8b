#include "core/attention/topk.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

#include "core/attention/row_kernels.hpp"
#include "core/attention/top_cuts.hpp"

namespace kvscope {

std::vector<Index> top_k(std::span<const double> scores, Index k) {
  std::vector<Index> order;
  if (k < 1) return order;
  order.reserve(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > -std::numeric_limits<double>::infinity()) {
      order.push_back(static_cast<Index>(i));
    }
  }
  const auto before = [&](Index a, Index b) {
    const double x = scores[static_cast<std::size_t>(a)];
    const double y = scores[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (k < static_cast<Index>(order.size())) {
    std::nth_element(order.begin(), order.begin() + k, order.end(), before);
    order.resize(static_cast<std::size_t>(k));
  }
  std::sort(order.begin(), order.end(), before);
  return order;
}

std::vector<Index> top_k_sorted_by_index(std::span<const double> scores, Index k) {
  TopCuts cuts;
  return members(scores, cuts.find(scores, std::span(&k, 1)).front(), k);
}

Index rank_of(std::span<const double> scores, Index index) {
  const double score = scores[static_cast<std::size_t>(index)];
  Index rank = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > score || (scores[i] == score && static_cast<Index>(i) < index)) ++rank;
  }
  return rank;
}

Index arg_max(std::span<const double> scores) {
  assert(!scores.empty());
  return std::find(scores.begin(), scores.end(), max_of(scores)) - scores.begin();
}

}  // namespace kvscope
