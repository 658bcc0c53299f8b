#include "analysis/kinds/tie_cut.hpp"

#include "analysis/base/kit.hpp"

namespace kvscope {

TieCut tie_cut(std::span<const double> scores, Index k) {
  TieCut cut;
  cut.gap = kNan;
  std::vector<double> sorted;
  for (const double score : scores) {
    if (score > -std::numeric_limits<double>::infinity()) sorted.push_back(score);
  }
  const auto n = static_cast<Index>(sorted.size());
  if (k < 1 || k >= n) return cut;
  std::nth_element(sorted.begin(), sorted.begin() + k - 1, sorted.end(), std::greater<>());
  cut.has_cut = true;
  cut.kth = sorted[static_cast<std::size_t>(k - 1)];
  const double next = *std::max_element(sorted.begin() + k, sorted.end());
  cut.gap = cut.kth - next;
  cut.has_tie = next == cut.kth;
  cut.tied = std::ranges::count(sorted, cut.kth);
  const Index above = std::ranges::count_if(sorted, [&](double x) { return x > cut.kth; });
  const Index inside = k - above;
  cut.changed = std::min(inside, cut.tied - inside);
  return cut;
}

}  // namespace kvscope
