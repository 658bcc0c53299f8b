// Lists of a selection as plain vectors, for comparisons.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/attention/selection.hpp"

namespace kvscope::test {

inline std::vector<KeyPos> merged(const ListView& list) {
  return {list.keys.begin(), list.keys.end()};
}

inline std::vector<KeyPos> merged(const KeyList& list) {
  std::vector<KeyPos> all;
  std::merge(list.scored.begin(), list.scored.end(), list.forced.begin(), list.forced.end(),
             std::back_inserter(all));
  return all;
}

}  // namespace kvscope::test
