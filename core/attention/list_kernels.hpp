// Inner loops over lists of keys: positions that belong to Top_k, members of a list that do, order
// of a list.
//
// Vector code is chosen at run time; results are whole numbers and the same on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/attention/top_cuts.hpp"

namespace kvscope {

/// Elements that keep_positions and find_buckets may write beyond the ones they count.
inline constexpr std::size_t kListSlack = 16;

/// Writes first + i for each score i inside the cut, ascending, and returns how many there are.
/// out: room for them and kListSlack more.
std::size_t keep_positions(std::span<const double> scores, const TopCut& cut, std::int32_t first,
                           std::int32_t* out);

/// How many of `keys` lie in each cut, where scores[key - first] is the score of a key.
std::array<Index, 3> count_in_cuts(std::span<const double> scores, Index first,
                                   std::span<const std::int32_t> keys,
                                   const std::array<TopCut, 3>& cuts);

/// Writes each i with buckets[i] among `wanted`, ascending, and returns how many there are. out:
/// room for them and kListSlack more.
std::size_t find_buckets(std::span<const std::int32_t> buckets,
                         std::span<const std::int32_t> wanted, std::int32_t* out);

/// True if each key is larger than the one before it.
bool is_ascending(std::span<const std::int32_t> keys);

}  // namespace kvscope
