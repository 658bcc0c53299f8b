// Lists of keys per KV head and a number for each of them: what operations of evicting methods
// take and give.
#pragma once

#include <span>
#include <vector>

#include "core/selectors/selector.hpp"

namespace kvscope {

/// [n_kv] ascending positions.
using KeyLists = std::vector<std::vector<KeyPos>>;
/// [n_kv][keys of the list].
using KeyValues = std::vector<std::vector<double>>;

inline std::vector<std::span<const KeyPos>> spans_of(const KeyLists& lists) {
  return {lists.begin(), lists.end()};
}

/// by_position[pos] of every key.
inline std::vector<double> values_at(std::span<const double> by_position,
                                     std::span<const KeyPos> keys) {
  std::vector<double> values;
  values.reserve(keys.size());
  for (const KeyPos pos : keys) values.push_back(by_position[static_cast<std::size_t>(pos)]);
  return values;
}
inline KeyValues values_at(std::span<const double> by_position, const KeyLists& lists) {
  KeyValues values;
  for (const auto& keys : lists) values.push_back(values_at(by_position, keys));
  return values;
}

}  // namespace kvscope
