#include "core/selectors/page_lists.hpp"

#include <algorithm>
#include <limits>

#include "core/attention/page_bounds.hpp"
#include "core/attention/topk.hpp"

namespace kvscope {

namespace {

bool is_decode(const SelectCall& call) {
  return call.phase == Phase::decode && call.n_tok == 1;
}

}  // namespace

SelectorCaps PageSelector::caps() const {
  SelectorCaps caps;
  caps.prefill = caps.decode = caps.verify = true;
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

Selection PageSelector::select(const SelectCall& call) {
  return std::move(select_budgets(call, std::span(&call.budget, 1)).front());
}

std::vector<Selection> PageSelector::select_budgets(SelectCall call,
                                                    std::span<const Budget> budgets) {
  const SelectorCaps method = caps();
  for (const Budget& budget : budgets) check_budget_kind(name(), method, budget);
  const ListOwner owner_kind = owner_of_call(call);
  if (call.layer < dense_layers_) return dense_selections(call, owner_kind, budgets.size());
  const TokenRange pages = scored_pages(call);
  return select_by_owner(call, owner_kind, call.n_tok, budgets.size(),
                         [&](const ListHeads& heads, ScoreWorker& worker, std::span<Selection> answers) {
                           const auto scores = page_scores(call, heads, pages, call_range(call), worker);
                           SelectCall question = call;
                           for (std::size_t i = 0; i < budgets.size(); ++i) {
                             question.budget = budgets[i];
                             answers[i].add(make_list(question, heads.kv_head, scores, pages));
                           }
                         });
}

Index PageSelector::n_pages_kept(Index budget, Index n_keys, Index n_pages) const {
  if (budget >= n_keys)
    return n_pages;  // whole and partial pages together may exceed budget / page
  switch (rule_) {
    case PageRule::eval:
      return quest_page_budget(QuestSemantics::eval, budget, page_size_, n_keys, n_pages);
    case PageRule::kernel:
      return quest_page_budget(QuestSemantics::kernel, budget, page_size_, n_keys, n_pages);
    case PageRule::frontier:
      return budget / page_size_;
    case PageRule::hub:
      return std::max<Index>(1, (budget + page_size_ - 1) / page_size_);
  }
  return 0;
}

KeyList PageSelector::make_list(const SelectCall& call, Index kv_head, std::vector<double> scores,
                                TokenRange pages) const {
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
    for (Index page = pages.begin; page < pages.end; ++page) {
      const auto n_alive = static_cast<Index>(keys_of(page).size());
      n_keys += n_alive;
      if (n_alive == 0) {
        scores[static_cast<std::size_t>(page - pages.begin)] =
            -std::numeric_limits<double>::infinity();
      }
    }
  }
  const Index budget = call.budget.tokens(n_keys, page_size_);

  std::vector<Index> kept;
  std::optional<Index> last_page;
  if (is_decode(call) && (rule_ == PageRule::kernel || rule_ == PageRule::frontier)) {
    last_page = pages.end - 1;
    const Index n =
        n_pages_kept(budget, n_keys, pages.size()) - (rule_ == PageRule::kernel ? 1 : 0);
    kept = top_k_sorted_by_index(std::span<const double>(scores).first(scores.size() - 1), n);
  } else {
    kept = top_k_sorted_by_index(scores, n_pages_kept(budget, n_keys, pages.size()));
  }

  KeyList list;
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
