#include "core/selectors/head_budgets.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/attention/topk.hpp"

namespace kvscope {

namespace {

/// Share of a head's votes that its best `even` keys hold.
double held_share(std::span<const double> votes, Index even) {
  double held = 0.0;
  for (const Index i : top_k_sorted_by_index(votes, even))
    held += votes[static_cast<std::size_t>(i)];
  const double all = std::accumulate(votes.begin(), votes.end(), 0.0);
  return all > 0.0 ? held / all : 1.0;
}

/// Of the `total` best scores of the layer, how many each head has; its best safe[h] come first.
/// even: if not 0, a head's scores count by the share that its best `even` keys hold.
std::vector<Index> count_best(std::span<const Contest> heads, std::span<const Index> safe,
                              Index total, Index even) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  Index n_pos = 0;
  for (const Contest& head : heads)
    n_pos = std::max<Index>(n_pos, head.keys.empty() ? 0 : head.keys.back() + 1);
  // [position][head].
  std::vector<double> flat(static_cast<std::size_t>(n_pos) * heads.size(), kNone);
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const Contest& head = heads[h];
    const double weight = even > 0 ? held_share(head.scores, even) : 1.0;
    for (std::size_t i = 0; i < head.keys.size(); ++i)
      flat[static_cast<std::size_t>(head.keys[i]) * heads.size() + h] = weight * head.scores[i];
    for (const Index i : top_k_sorted_by_index(head.scores, safe[h])) {
      flat[static_cast<std::size_t>(head.keys[static_cast<std::size_t>(i)]) * heads.size() + h] =
          std::numeric_limits<double>::max();
    }
  }
  std::vector<Index> counts(heads.size(), 0);
  for (const Index i : top_k_sorted_by_index(flat, total))
    ++counts[static_cast<std::size_t>(i) % heads.size()];
  return counts;
}

/// floor + (1 - floor share) * count, whole numbers with the sum `total` by the largest
/// remainders (lowest head first), never more than a head has.
std::vector<Index> shrink_to_floor(std::span<const Contest> heads, std::span<const Index> counts,
                                   Index floor, double floor_share, Index total) {
  std::vector<Index> kept(heads.size());
  std::vector<double> remainders(heads.size());
  Index left = total;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const double wanted =
        static_cast<double>(floor) + (1.0 - floor_share) * static_cast<double>(counts[h]);
    kept[h] =
        std::min(static_cast<Index>(std::floor(wanted)), static_cast<Index>(heads[h].keys.size()));
    remainders[h] = wanted - std::floor(wanted);
    left -= kept[h];
  }
  std::vector<std::size_t> order(heads.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  for (bool has_given = true; left > 0 && has_given;) {
    has_given = false;
    for (const std::size_t h : order) {
      if (left == 0 || kept[h] == static_cast<Index>(heads[h].keys.size())) continue;
      ++kept[h];
      --left;
      has_given = true;
    }
  }
  return kept;
}

}  // namespace

std::vector<Index> divide_budget(Index budget, std::span<const Contest> heads,
                                 const BudgetDivision& rule) {
  Index total = budget * static_cast<Index>(heads.size());
  for (const Contest& head : heads) total -= head.n_safe;
  const Index even = total / static_cast<Index>(heads.size());
  const auto floor = static_cast<Index>(rule.floor * static_cast<double>(even));
  std::vector<Index> safe(heads.size(), 0);
  if (rule.way == BudgetDivision::Way::safeguard) {
    for (std::size_t h = 0; h < heads.size(); ++h)
      safe[h] = std::min(floor, static_cast<Index>(heads[h].keys.size()));
    return count_best(heads, safe, total, rule.normalize ? even : Index{0});
  }
  const std::vector<Index> counts =
      count_best(heads, safe, total, rule.normalize ? even : Index{0});
  return shrink_to_floor(heads, counts, floor, rule.floor, total);
}

}  // namespace kvscope
