// Which keys a query sees: every position up to its own, or the last `window` of them.
#pragma once

#include <algorithm>
#include <optional>

#include "core/base/index.hpp"

namespace kvscope {

/// Keys visible to the query at `pos`; `window` counts the query's own position and is empty for
/// full attention.
inline TokenRange visible_keys(Index pos, std::optional<Index> window) {
  const Index begin = window ? std::max<Index>(0, pos + 1 - *window) : 0;
  return {begin, pos + 1};
}

}  // namespace kvscope
