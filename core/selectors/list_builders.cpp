#include "core/selectors/list_builders.hpp"

#include <algorithm>
#include <limits>

#include "core/selectors/candidates.hpp"
#include "core/selectors/owners.hpp"

namespace kvscope {

SelectorCaps block_share_caps(PatternSize sizes, Index block) {
  SelectorCaps caps;
  caps.decode = caps.verify = false;
  caps.owner = ListOwner::q_head;
  if (sizes == PatternSize::budget) caps.budgets = {Budget::Kind::mass};
  caps.page_size = block;
  return caps;
}

double block_share(PatternSize sizes, double option, const Budget& budget) {
  return sizes == PatternSize::options ? option : budget.value;
}

Selection select_past(const SelectCall& call, const ChoosePast& choose) {
  const auto add = [&](const ListHeads& heads, ScoreWorker&, std::span<Selection> selections) {
    const std::vector<KeyPos> past = candidates(call, heads.kv_head, past_range(call));
    const Index n_keep = call.budget.tokens(static_cast<Index>(past.size()), /*page_size=*/1);
    KeyList list;
    list.scored = choose(heads.kv_head, past, std::min(n_keep, static_cast<Index>(past.size())));
    list.forced = candidates(call, heads.kv_head, chunk_range(call));
    selections.front().add(list);
  };
  return std::move(
      select_by_owner(call, ListOwner::kv_head, call.n_tok, /*n_selections=*/1, add).front());
}

TokenRange between_ends(const SelectCall& call, TokenRange keys, Index n_sink, Index n_recent) {
  const Index begin = std::clamp(n_sink, keys.begin, std::max(keys.begin, keys.end));
  return {begin, std::clamp(call.pos_begin - n_recent, begin, std::max(begin, keys.end))};
}

KeyList best_between_ends(const SelectCall& call, Index kv_head, std::span<const double> scores,
                          TokenRange keys, Index n_sink, Index n_recent) {
  const auto [middle_begin, middle_end] = between_ends(call, keys, n_sink, n_recent);
  const auto middle = scores.subspan(static_cast<std::size_t>(middle_begin - keys.begin),
                                     static_cast<std::size_t>(middle_end - middle_begin));
  const auto n_candidates =
      static_cast<Index>(std::count_if(middle.begin(), middle.end(), [](double x) {
        return x > -std::numeric_limits<double>::infinity();
      }));
  KeyList list = top_k_list(middle, TokenRange{middle_begin, middle_end},
                            call.budget.tokens(n_candidates, /*page_size=*/1));
  list.forced = candidates(call, kv_head, TokenRange{keys.begin, middle_begin});
  force_keys(list, candidates(call, kv_head, TokenRange{middle_end, call.pos_begin + call.n_tok}));
  return list;
}

Selection select_rows(const SelectCall& call, const RowPattern& pattern) {
  Selection selection(ListOwner::layer, call.n_tok, /*list_rows=*/1);
  for (Index row = 0; row < call.n_tok; ++row) selection.add(pattern(call.pos_begin + row));
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
