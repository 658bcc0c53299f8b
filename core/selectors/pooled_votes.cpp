#include "core/selectors/pooled_votes.hpp"

#include <algorithm>
#include <numeric>

namespace kvscope {

std::vector<double> pooled_votes(std::span<const double> votes, Index kernel, Pooling pooling) {
  std::vector<double> out(votes.begin(), votes.end());
  if (pooling == Pooling::none) return out;
  const auto n = static_cast<Index>(votes.size());
  for (Index j = 0; j < n; ++j) {
    const Index first = std::max<Index>(0, j - kernel / 2);
    const Index last = std::min(n, j - kernel / 2 + kernel);
    const auto part =
        votes.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
    out[static_cast<std::size_t>(j)] =
        pooling == Pooling::max
            ? *std::max_element(part.begin(), part.end())
            : std::accumulate(part.begin(), part.end(), 0.0) / static_cast<double>(kernel);
  }
  return out;
}

}  // namespace kvscope
