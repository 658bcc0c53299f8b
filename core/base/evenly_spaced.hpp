// All positions of a range, or some at equal distances.
#pragma once

#include <algorithm>
#include <vector>

#include "core/base/index.hpp"

namespace kvscope {

/// begin, begin + 1, ... end - 1.
inline std::vector<Index> all_in(Index begin, Index end) {
  std::vector<Index> all;
  for (Index i = begin; i < end; ++i) all.push_back(i);
  return all;
}

/// n positions of [begin, end) at equal distances, the last one always among them; all of them if
/// there are no more.
inline std::vector<Index> evenly_spaced(Index begin, Index end, Index n) {
  std::vector<Index> positions;
  const Index size = end - begin;
  if (size <= 0 || n <= 0) return positions;
  const Index count = std::min(n, size);
  for (Index i = 0; i < count; ++i) {
    positions.push_back(count == 1 ? end - 1 : begin + i * (size - 1) / (count - 1));
  }
  return positions;
}

}  // namespace kvscope
