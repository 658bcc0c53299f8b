#include "core/selectors/page_lists.hpp"

#include <algorithm>
#include <limits>

#include "core/attention/topk.hpp"

namespace kvscope {

namespace {

// Of one KV head, below which sharing them among threads costs more than it saves.
constexpr Index kPagesOfPart = 128;

}  // namespace

SelectorCaps PageSelector::caps() const {
  SelectorCaps caps;
  caps.owner = owner_ == PageOwner::q_head ? ListOwner::q_head : ListOwner::kv_head;
  caps.budgets = {Budget::Kind::tokens, Budget::Kind::pages, Budget::Kind::ratio};
  caps.forced_inside_budget = rule_ == PageRule::kernel;
  caps.page_size = page_size_;
  caps.dense_layers = dense_layers_;
  return caps;
}

ListOwner PageSelector::owner_of_call(const SelectCall& call) const {
  return is_decode(call) && owner_ == PageOwner::q_head ? ListOwner::q_head : ListOwner::kv_head;
}

TokenRange PageSelector::scored_range(const SelectCall& call) const {
  const TokenRange visible = call_range(call);
  const Index first = visible.begin / page_size_;
  if (!is_decode(call)) return {first, std::max(first, call.pos_begin / page_size_)};
  return {first, (visible.end - 1) / page_size_ + 1};
}

TokenRange PageSelector::keys_of(const SelectCall& call, TokenRange pages) const {
  const TokenRange visible = call_range(call);
  return {std::max(pages.begin * page_size_, visible.begin),
          std::min(pages.end * page_size_, visible.end)};
}

bool PageSelector::score_owners(const SelectCall& call, ListOwner, TokenRange pages,
                                std::span<const std::span<double>> scores) {
  ScoreEngine& engine = engine_of(call);
  const Index group = call.q.dim(0) / call.k.dim(0);
  const bool is_apart = scores_pages_apart();
  const auto n_rows = static_cast<Index>(scores.size());
  const Index rows_per_task = is_apart ? n_rows / call.k.dim(0) : 1;
  const Index n_tasks = n_rows / rows_per_task;
  const Index heads_per_task = call.q.dim(0) / n_tasks;
  Index n_parts = 1;
  if (is_apart && engine.n_workers() > 1) {
    n_parts = std::clamp<Index>(2 * engine.n_workers() / n_tasks, 1,
                                std::max<Index>(1, pages.size() / kPagesOfPart));
  }
  engine.run(n_tasks * n_parts, [&](Index index, ScoreWorker& worker) {
    const Index task = index / n_parts;
    const Index part = index % n_parts;
    const Index begin = pages.size() * part / n_parts;
    const Index end = pages.size() * (part + 1) / n_parts;
    const ListHeads heads{
        task, {task * heads_per_task, (task + 1) * heads_per_task}, task * heads_per_task / group};
    std::vector<std::span<double>> rows;
    for (Index row = task * rows_per_task; row < (task + 1) * rows_per_task; ++row) {
      rows.push_back(scores[static_cast<std::size_t>(row)].subspan(
          static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    }
    page_scores(call, heads, {pages.begin + begin, pages.begin + end}, worker, rows);
  });
  return true;
}

void PageSelector::leave_out_dead(const SelectCall& call, Index kv_head, TokenRange pages,
                                  std::span<double> scores) const {
  if (all_alive(call, kv_head)) return;
  for (Index page = pages.begin; page < pages.end; ++page) {
    if (count_candidates(call, kv_head, keys_of(call, {page, page + 1})) == 0)
      scores[static_cast<std::size_t>(page - pages.begin)] =
          -std::numeric_limits<double>::infinity();
  }
}

KeyList PageSelector::make_list(const SelectCall& call, const Owner& owner,
                                std::span<const double> scores, TokenRange pages, ScoreWorker&,
                                Summaries&) {
  const Index n_keys = count_candidates(call, owner.kv_head, keys_of(call, pages));
  const Index budget = call.budget.tokens(n_keys, page_size_);
  Index n_kept = pages_kept(rule_, budget, page_size_, n_keys, pages.size());
  const bool keeps_last =
      is_decode(call) && (rule_ == PageRule::kernel || rule_ == PageRule::frontier);
  if (keeps_last) scores = scores.first(scores.size() - 1);
  if (keeps_last && rule_ == PageRule::kernel) --n_kept;

  KeyList list;
  const std::vector<Index> kept = top_k_sorted_by_index(scores, n_kept);
  list.scored.reserve(kept.size() * static_cast<std::size_t>(page_size_));
  for (const Index i : kept) {
    const Index page = pages.begin + i;
    const auto keys = candidates(call, owner.kv_head, keys_of(call, {page, page + 1}));
    list.scored.insert(list.scored.end(), keys.begin(), keys.end());
  }
  const Index first_forced = pages.end - (keeps_last ? 1 : 0);
  const TokenRange visible = call_range(call);
  list.forced =
      candidates(call, owner.kv_head,
                 TokenRange{std::max(first_forced * page_size_, visible.begin), visible.end});
  return list;
}

}  // namespace kvscope
