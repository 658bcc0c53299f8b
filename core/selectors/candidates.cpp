#include "core/selectors/candidates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

#include "core/attention/list_kernels.hpp"
#include "core/attention/top_cuts.hpp"
#include "core/attention/topk.hpp"
#include "core/attention/visible.hpp"
#include "core/base/error.hpp"

namespace kvscope {

TokenRange chunk_range(const SelectCall& call) {
  return {call.pos_begin, call.pos_begin + call.n_tok};
}

TokenRange past_range(const SelectCall& call) {
  return {std::min(call_range(call).begin, call.pos_begin), call.pos_begin};
}

TokenRange call_range(const SelectCall& call) {
  return {visible_keys(call.pos_begin, call.window).begin, call.pos_begin + call.n_tok};
}

TokenRange row_range(const SelectCall& call, Index row) {
  return visible_keys(call.pos_begin + row, call.window);
}

std::optional<double> sink_logit_of(const SelectCall& call, Index q_head) {
  if (call.sink_logits.empty()) return std::nullopt;
  return static_cast<double>(call.sink_logits[static_cast<std::size_t>(q_head)]);
}

bool is_alive(const SelectCall& call, Index kv_head, Index pos) {
  return call.alive == nullptr || call.alive->is_alive(kv_head, static_cast<KeyPos>(pos));
}

bool all_alive(const SelectCall& call, Index kv_head) {
  return call.alive == nullptr || call.alive->all_alive(kv_head);
}

bool all_alive(const SelectCall& call) {
  Index head = 0;
  while (head < call.k.dim(0) && all_alive(call, head)) ++head;
  return head == call.k.dim(0);
}

bool is_held(const SelectCall& call, Index pos) {
  Index head = 0;
  while (head < call.k.dim(0) && !is_alive(call, head, pos)) ++head;
  return head < call.k.dim(0);
}

std::vector<KeyPos> candidates(const SelectCall& call, Index kv_head, TokenRange range) {
  if (!all_alive(call, kv_head)) return call.alive->keys(kv_head, range);
  std::vector<KeyPos> keys(static_cast<std::size_t>(std::max<Index>(range.size(), 0)));
  std::iota(keys.begin(), keys.end(), static_cast<KeyPos>(range.begin));
  return keys;
}

Index count_candidates(const SelectCall& call, Index kv_head, TokenRange range) {
  const Index n = std::max<Index>(range.size(), 0);
  return all_alive(call, kv_head) ? n : call.alive->n_alive(kv_head, range);
}

void mask_dead(const SelectCall& call, Index kv_head, TokenRange range, std::span<double> scores) {
  if (all_alive(call, kv_head)) return;
  for (Index pos = range.begin; pos < range.end; ++pos) {
    if (!is_alive(call, kv_head, pos)) {
      scores[static_cast<std::size_t>(pos - range.begin)] =
          -std::numeric_limits<double>::infinity();
    }
  }
}

KeyList top_k_list(std::span<const double> scores, std::span<const KeyPos> candidates, Index k) {
  KeyList list;
  for (const Index i : top_k_sorted_by_index(scores, k)) {
    list.scored.push_back(candidates[static_cast<std::size_t>(i)]);
  }
  return list;
}

KeyList top_k_list(std::span<const double> scores, TokenRange range, Index k) {
  KeyList list;
  for (const Index i : top_k_sorted_by_index(scores, k)) {
    list.scored.push_back(static_cast<KeyPos>(range.begin + i));
  }
  return list;
}

void add_top_k_lists(std::span<const double> scores, TokenRange range, std::span<const Index> ks,
                     std::span<const KeyPos> forced, std::span<Selection> selections) {
  thread_local TopCuts finder;  // both keep their memory from row to row
  // Of one budget each: hardly any of their elements are made anew.
  thread_local std::vector<KeyList> lists;
  if (lists.size() < ks.size()) lists.resize(ks.size());
  const std::span<const TopCut> cuts = finder.find(scores, ks);
  for (std::size_t i = 0; i < ks.size(); ++i) {
    KeyList& list = lists[i];
    list.forced.assign(forced.begin(), forced.end());
    const Index most = std::clamp<Index>(ks[i], 0, static_cast<Index>(scores.size()));
    list.scored.resize(static_cast<std::size_t>(most) + kListSlack);
    list.scored.resize(
        keep_positions(scores, cuts[i], static_cast<KeyPos>(range.begin), list.scored.data()));
    selections[i].add(list);
  }
}

void force_keys(KeyList& list, std::span<const KeyPos> keys) {
  std::vector<KeyPos> forced;
  forced.reserve(list.forced.size() + keys.size());
  std::set_union(list.forced.begin(), list.forced.end(), keys.begin(), keys.end(),
                 std::back_inserter(forced));
  std::vector<KeyPos> scored;
  scored.reserve(list.scored.size());
  std::set_difference(list.scored.begin(), list.scored.end(), keys.begin(), keys.end(),
                      std::back_inserter(scored));
  list.forced = std::move(forced);
  list.scored = std::move(scored);
}

Selection dense_selection(const SelectCall& call, ListOwner owner) {
  return Selection::dense(owner, call.n_tok);
}

std::vector<Selection> dense_selections(const SelectCall& call, ListOwner owner, std::size_t n) {
  std::vector<Selection> selections(n);
  for (Selection& selection : selections) selection = dense_selection(call, owner);
  return selections;
}

CrossLayerContext& context_of(const SelectCall& call, std::string_view method) {
  if (call.context == nullptr) {
    throw ConfigError(
        "{}: its lists pass from layer to layer, but the call has no cross-layer context", method);
  }
  return *call.context;
}

Selection without_dead_keys(Selection selection, const SelectCall& call) {
  const Index n_kv = call.k.dim(0);
  if (selection.owner != ListOwner::layer || selection.is_dense || all_alive(call))
    return selection;
  Selection split(ListOwner::kv_head, selection.n_tok, selection.rows_per_list);
  for (Index kv_head = 0; kv_head < n_kv; ++kv_head) {
    const auto stays = [&](KeyPos key) { return is_alive(call, kv_head, key); };
    for (Index i = 0; i < selection.n_lists(); ++i) split.add(selection.at(i).where(stays));
  }
  return split;
}

void check_budget_kind(std::string_view method, const SelectorCaps& caps, const Budget& budget) {
  if (std::find(caps.budgets.begin(), caps.budgets.end(), budget.kind) != caps.budgets.end())
    return;
  std::vector<std::string_view> names;
  constexpr std::string_view kNames[] = {"tokens=N", "pages=N", "ratio=X", "p=X"};
  for (const Budget::Kind kind : caps.budgets)
    names.push_back(kNames[static_cast<std::size_t>(kind)]);
  throw ConfigError(
      "{}: budget {} does not fit, expected {}", method, budget.to_string(),
      names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, " or ")));
}

}  // namespace kvscope
