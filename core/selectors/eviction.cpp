#include "core/selectors/eviction.hpp"

#include "core/attention/topk.hpp"
#include "core/selectors/candidates.hpp"

namespace kvscope {

Selection alive_selection(const SelectCall& call) {
  const Index n_kv = call.k.dim(0);
  bool is_complete = true;
  for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
    is_complete = is_complete && all_alive(call, kv_head);
  }
  if (is_complete) return dense_selection(call, ListOwner::kv_head);
  Selection selection(ListOwner::kv_head, call.n_tok, call.n_tok);
  for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
    KeyList list;
    list.scored = candidates(call, kv_head, past_range(call));
    list.forced = candidates(call, kv_head, chunk_range(call));
    selection.add(list);
  }
  return selection;
}

Index eviction_budget(const SelectCall& call) {
  return call.budget.tokens(call.pos_begin + call.n_tok, /*page_size=*/1);
}

Index attended_keys_of(const SelectCall& call, const Selection& selection, Index kv_head) {
  if (selection.is_dense) return call_range(call).size();
  const Index group = call.q.dim(0) / call.k.dim(0);
  return selection.list(owner_of(selection.owner, kv_head * group, group), /*row=*/0).size();
}

void keep_best(std::span<const double> scores, std::span<const KeyPos> candidates, Index n_keep,
               Index kv_head, AliveMask& alive) {
  if (n_keep >= static_cast<Index>(candidates.size())) return;
  std::size_t next_kept = 0;
  const std::vector<Index> kept = top_k_sorted_by_index(scores, n_keep);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (next_kept < kept.size() && kept[next_kept] == static_cast<Index>(i)) {
      ++next_kept;
    } else {
      alive.kill(kv_head, candidates[i]);
    }
  }
}

}  // namespace kvscope
