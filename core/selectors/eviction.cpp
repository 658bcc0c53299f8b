#include "core/selectors/eviction.hpp"

#include <algorithm>

#include "core/attention/topk.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/owners.hpp"

namespace kvscope {

Selection alive_selection(const SelectCall& call) {
  const Index n_kv = call.k.dim(0);
  if (all_alive(call)) return dense_selection(call, ListOwner::kv_head);
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

double attended_keys_of(const SelectCall& call, const Selection& selection) {
  double n_keys = 0.0;
  for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head)
    n_keys += static_cast<double>(attended_keys_of(call, selection, kv_head));
  return n_keys;
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

void EvictingMethod::evict(const SelectCall& call, AliveMask& alive) {
  if (!evicts_after(call)) return;
  const Index n_kv = call.k.dim(0);
  const Index budget = budget_of(call);
  ScoreEngine& engine = engine_of(call);
  KeyLists keys(static_cast<std::size_t>(n_kv));
  engine.run(n_kv, [&](Index kv_head, ScoreWorker&) {
    keys[static_cast<std::size_t>(kv_head)] =
        candidates(call, kv_head, TokenRange{0, call.pos_begin + call.n_tok});
  });
  Index most = 0;
  Index total = 0;
  for (const auto& list : keys) {
    most = std::max(most, static_cast<Index>(list.size()));
    total += static_cast<Index>(list.size());
  }
  if (caps().divides_budget ? total <= budget * n_kv : most <= budget) return;
  const KeyValues all = scores(call, keys);
  const std::vector<Contest> contests = contests_of(budget, keys, all);
  const std::vector<Index> kept = shares(budget, contests);
  engine.run(n_kv, [&](Index kv_head, ScoreWorker&) {
    const auto at = static_cast<std::size_t>(kv_head);
    keep_best(contests[at].scores, contests[at].keys, kept[at], kv_head, alive);
    const std::size_t n_before = keys[at].size();
    std::erase_if(keys[at], [&](KeyPos pos) { return !alive.is_alive(kv_head, pos); });
    if (keys[at].size() < n_before) after_loss(call, kv_head, keys[at]);
  });
}

std::vector<Contest> EvictingMethod::contests_of(Index budget, const KeyLists& keys,
                                                 const KeyValues& scores) const {
  std::vector<Contest> contests;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Index most_safe = std::min(budget, static_cast<Index>(keys[i].size()));
    const Index sink = std::min(n_sink(), most_safe);
    const Index recent = std::min(n_recent(budget), most_safe - sink);
    const auto first = static_cast<std::size_t>(sink);
    const std::size_t n = keys[i].size() - static_cast<std::size_t>(sink + recent);
    contests.push_back({std::span(keys[i]).subspan(first, n),
                        std::span(scores[i]).subspan(first, n), sink + recent});
  }
  return contests;
}

std::vector<Index> EvictingMethod::shares(Index budget, std::span<const Contest> contests) const {
  std::vector<Index> kept;
  for (const Contest& contest : contests) kept.push_back(budget - contest.n_safe);
  return kept;
}

}  // namespace kvscope
