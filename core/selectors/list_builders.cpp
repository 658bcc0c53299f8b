#include "core/selectors/list_builders.hpp"

#include <algorithm>

#include "core/selectors/candidates.hpp"
#include "core/selectors/owners.hpp"

namespace kvscope {

Selection select_past(const SelectCall& call, const ChoosePast& choose) {
  const auto add = [&](const ListHeads& heads, ScoreWorker&, std::span<Selection> answers) {
    const std::vector<KeyPos> past = candidates(call, heads.kv_head, past_range(call));
    const Index n_keep = call.budget.tokens(static_cast<Index>(past.size()), /*page_size=*/1);
    KeyList list;
    list.scored = choose(heads.kv_head, past, std::min(n_keep, static_cast<Index>(past.size())));
    list.forced = candidates(call, heads.kv_head, chunk_range(call));
    answers.front().add(list);
  };
  return std::move(select_by_owner(call, ListOwner::kv_head, call.n_tok, /*n_answers=*/1, add).front());
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
