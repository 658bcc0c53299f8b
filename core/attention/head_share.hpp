// How many of a head's channels a method takes that is asked for a share of them.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/base/index.hpp"

namespace kvscope {

/// `count` if it is at least 1, at most all d_head; else the rounded share of d_head, at least 1.
inline Index channels_of(Index count, double share, Index d_head) {
  const Index wanted = count > 0 ? count : std::lround(share * static_cast<double>(d_head));
  return std::clamp<Index>(wanted, 1, d_head);
}

}  // namespace kvscope
