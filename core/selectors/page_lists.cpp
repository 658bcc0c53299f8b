#include "core/selectors/page_lists.hpp"

#include <algorithm>
#include <limits>

#include "core/attention/topk.hpp"
#include "core/selectors/candidates.hpp"

namespace kvscope {

namespace {

// Of one KV head, below which sharing them among threads costs more than it saves.
constexpr Index kPagesOfPart = 128;

bool is_decode(const SelectCall& call) {
  return call.phase == Phase::decode && call.n_tok == 1;
}

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

TokenRange PageSelector::scored_pages(const SelectCall& call) const {
  const TokenRange visible = call_range(call);
  const Index first = visible.begin / page_size_;
  if (!is_decode(call)) return {first, std::max(first, call.pos_begin / page_size_)};
  return {first, (visible.end - 1) / page_size_ + 1};
}

std::vector<Selection> PageSelector::select_budgets(SelectCall call,
                                                    std::span<const Budget> budgets) {
  const SelectorCaps method = caps();
  for (const Budget& budget : budgets) check_budget_kind(name(), method, budget);
  const ListOwner owner_kind = owner_of_call(call);
  if (call.layer < dense_layers_) return dense_selections(call, owner_kind, budgets.size());
  const TokenRange pages = scored_pages(call);
  const std::vector<std::vector<double>> scores = score_owners(call, owner_kind, pages);
  if (call.trace != nullptr) {
    call.trace->scored = pages;
    call.trace->scores = scores;
  }
  return select_by_owner(
      call, owner_kind, call.n_tok, budgets.size(),
      [&](const ListHeads& heads, ScoreWorker&, std::span<Selection> selections) {
        SelectCall question = call;
        for (std::size_t i = 0; i < budgets.size(); ++i) {
          question.budget = budgets[i];
          selections[i].add(make_list(question, heads.kv_head,
                                      scores[static_cast<std::size_t>(heads.index)], pages));
        }
      });
}

std::vector<std::vector<double>> PageSelector::score_owners(const SelectCall& call,
                                                            ListOwner owner_kind,
                                                            TokenRange pages) {
  ScoreEngine& engine = engine_of(call);
  const Index n_kv = call.k.dim(0);
  const Index group = call.q.dim(0) / n_kv;
  const Index rows_per_kv_head = owner_kind == ListOwner::q_head ? group : 1;
  const bool is_apart = scores_pages_apart();
  const Index rows_per_task = is_apart ? rows_per_kv_head : 1;
  const Index n_tasks = n_kv * rows_per_kv_head / rows_per_task;
  const Index heads_per_task = call.q.dim(0) / n_tasks;
  Index n_parts = 1;
  if (is_apart && engine.n_workers() > 1) {
    n_parts = std::clamp<Index>(2 * engine.n_workers() / n_tasks, 1,
                                std::max<Index>(1, pages.size() / kPagesOfPart));
  }
  std::vector<std::vector<double>> scores(static_cast<std::size_t>(n_tasks * rows_per_task));
  for (auto& row : scores) row.resize(static_cast<std::size_t>(pages.size()));
  engine.run(n_tasks * n_parts, [&](Index index, ScoreWorker& worker) {
    const Index task = index / n_parts;
    const Index part = index % n_parts;
    const Index begin = pages.size() * part / n_parts;
    const Index end = pages.size() * (part + 1) / n_parts;
    const ListHeads heads{
        task, {task * heads_per_task, (task + 1) * heads_per_task}, task * heads_per_task / group};
    std::vector<std::span<double>> rows;
    for (Index row = task * rows_per_task; row < (task + 1) * rows_per_task; ++row) {
      rows.push_back(
          std::span(scores[static_cast<std::size_t>(row)])
              .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    }
    page_scores(call, heads, {pages.begin + begin, pages.begin + end}, call_range(call), worker,
                rows);
  });
  return scores;
}

KeyList PageSelector::make_list(const SelectCall& call, Index kv_head,
                                std::span<const double> page_scores, TokenRange pages) const {
  std::vector<double> of_alive;  // -infinity for pages that lost all keys
  std::span<const double> scores = page_scores;
  const TokenRange visible = call_range(call);
  const auto keys_of = [&](Index page) {
    return candidates(call, kv_head,
                      TokenRange{std::max(page * page_size_, visible.begin),
                                 std::min((page + 1) * page_size_, visible.end)});
  };
  Index n_keys =
      pages.size() > 0 ? std::min(pages.end * page_size_, visible.end) - visible.begin : 0;
  if (!all_alive(call, kv_head)) {
    n_keys = 0;
    of_alive.assign(page_scores.begin(), page_scores.end());
    scores = of_alive;
    for (Index page = pages.begin; page < pages.end; ++page) {
      const auto n_alive = static_cast<Index>(keys_of(page).size());
      n_keys += n_alive;
      if (n_alive == 0) {
        of_alive[static_cast<std::size_t>(page - pages.begin)] =
            -std::numeric_limits<double>::infinity();
      }
    }
  }
  const Index budget = call.budget.tokens(n_keys, page_size_);

  std::vector<Index> kept;
  std::optional<Index> last_page;
  if (is_decode(call) && (rule_ == PageRule::kernel || rule_ == PageRule::frontier)) {
    last_page = pages.end - 1;
    const Index n = pages_kept(rule_, budget, page_size_, n_keys, pages.size()) -
                    (rule_ == PageRule::kernel ? 1 : 0);
    kept = top_k_sorted_by_index(scores.first(scores.size() - 1), n);
  } else {
    kept =
        top_k_sorted_by_index(scores, pages_kept(rule_, budget, page_size_, n_keys, pages.size()));
  }

  KeyList list;
  list.scored.reserve(kept.size() * static_cast<std::size_t>(page_size_));
  for (const Index i : kept) {
    const auto keys = keys_of(pages.begin + i);
    list.scored.insert(list.scored.end(), keys.begin(), keys.end());
  }
  if (last_page) list.forced = keys_of(*last_page);
  if (!is_decode(call)) {
    const Index begin = std::max(pages.end * page_size_, visible.begin);
    list.forced = candidates(call, kv_head, TokenRange{begin, visible.end});
  }
  return list;
}

}  // namespace kvscope
