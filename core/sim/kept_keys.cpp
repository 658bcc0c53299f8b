#include "core/sim/kept_keys.hpp"

#include <algorithm>

#include "core/attention/visible.hpp"
#include "core/sim/attended.hpp"

namespace kvscope {

namespace {

void mark_inside(std::span<const KeyPos> keys, TokenRange range, std::vector<std::uint8_t>& marks) {
  std::uint8_t* const mark = marks.data();  // not read again with every byte that is written
  for (const KeyPos key : inside(keys, range)) mark[key] = 1;
}

/// Number of ascending `keys` inside `range`.
Index count_inside(std::span<const KeyPos> keys, TokenRange range) {
  return static_cast<Index>(inside(keys, range).size());
}

}  // namespace

KeptKeys count_kept_keys(const Selection& selection, Index group, Index kv_head, TokenRange call,
                         std::optional<Index> window) {
  KeptKeys kept;
  kept.attended.assign(static_cast<std::size_t>(group), 0.0);
  if (selection.is_dense) {
    double n_attended = 0.0;
    for (Index pos = call.begin; pos < call.end; ++pos) {
      n_attended += static_cast<double>(visible_keys(pos, window).size());
    }
    kept.attended.assign(static_cast<std::size_t>(group), n_attended);
    kept.n_union = static_cast<double>(call.end - visible_keys(call.begin, window).begin);
    return kept;
  }
  const bool one_list = selection.owner != ListOwner::q_head && selection.n_row_blocks() == 1;
  std::vector<std::uint8_t> loaded(one_list ? 0 : static_cast<std::size_t>(call.end), 0);
  for (Index r = 0; r < group; ++r) {
    const Index q_head = kv_head * group + r;
    const bool is_shared = selection.owner != ListOwner::q_head && r > 0;
    if (is_shared) {
      kept.attended[static_cast<std::size_t>(r)] = kept.attended[0];
      continue;
    }
    for (Index row = 0; row < call.size(); ++row) {
      const TokenRange visible = visible_keys(call.begin + row, window);
      const auto keys = selection.list(owner_of(selection.owner, q_head, group), row).keys;
      kept.attended[static_cast<std::size_t>(r)] +=
          static_cast<double>(count_inside(keys, visible));
      const bool is_block_end = row + 1 == call.size() || (row + 1) % selection.rows_per_list == 0;
      if (!is_block_end) continue;
      const Index first_row = row / selection.rows_per_list * selection.rows_per_list;
      const TokenRange seen{visible_keys(call.begin + first_row, window).begin, visible.end};
      if (one_list) {
        kept.n_union = static_cast<double>(count_inside(keys, seen));
        continue;
      }
      mark_inside(keys, seen, loaded);
    }
  }
  if (!one_list) {
    kept.n_union = static_cast<double>(std::count(loaded.begin(), loaded.end(), std::uint8_t{1}));
  }
  return kept;
}

}  // namespace kvscope
