// Counts, positions and token ids: the integers that every part of the program speaks of.
#pragma once

#include <cstdint>

namespace kvscope {

using Index = std::int64_t;
using TokenId = std::int32_t;

/// Half-open range of token positions.
struct TokenRange {
  Index begin = 0;
  Index end = 0;
  Index size() const { return end - begin; }
  bool operator==(const TokenRange&) const = default;
};

}  // namespace kvscope
