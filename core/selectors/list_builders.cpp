#include "core/selectors/list_builders.hpp"

#include <algorithm>

#include "core/selectors/candidates.hpp"

namespace kvscope {

Selection select_past(const SelectCall& call, const ChoosePast& choose) {
  Selection selection(ListOwner::kv_head, call.n_tok, call.n_tok);
  for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
    const std::vector<KeyPos> past = candidates(call, kv_head, past_range(call));
    const Index n_keep = call.budget.tokens(static_cast<Index>(past.size()), /*page_size=*/1);
    KeyList list;
    list.scored = choose(kv_head, past, std::min(n_keep, static_cast<Index>(past.size())));
    list.forced = candidates(call, kv_head, chunk_range(call));
    selection.add(list);
  }
  return selection;
}

Selection select_rows(const SelectCall& call, const RowPattern& pattern) {
  Selection selection(ListOwner::layer, call.n_tok, /*list_rows=*/1);
  for (Index row = 0; row < call.n_tok; ++row)
    selection.add(pattern(call.pos_begin + row));
  return without_dead_keys(std::move(selection), call);
}

void append_range(std::vector<KeyPos>& keys, Index begin, Index end) {
  if (!keys.empty()) begin = std::max<Index>(begin, keys.back() + Index{1});
  for (Index j = begin; j < end; ++j) keys.push_back(static_cast<KeyPos>(j));
}

void remove_dead(const SelectCall& call, Index kv_head, KeyList& list) {
  if (all_alive(call, kv_head)) return;
  const auto is_dead = [&](KeyPos pos) { return !is_alive(call, kv_head, pos); };
  std::erase_if(list.scored, is_dead);
  std::erase_if(list.forced, is_dead);
}

}  // namespace kvscope
