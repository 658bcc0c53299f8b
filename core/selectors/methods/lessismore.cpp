// lessismore: one list for all heads, made in a few layers and used by the others (arXiv
// 2508.07101; official code).
//
// Idea: heads and neighbouring layers want much the same keys. Layers 0 and 1 are dense. The
// selection layers (2 and a correction layer) attend to everything and make a list: the first
// n-sink keys, the latest ones, and between them the heads' best keys merged in order of rank (best
// key of head 0, 1, ..., then each head's second best, ...) without repeats. Every other layer uses
// the latest list.
//
// Cost: at a selection layer 2 n_q n_tok T d FLOPs and one read of all keys (its own dense
// attention makes them anyway; here they are made once more, in decode half of what attention
// reads); nothing elsewhere. Stores one list. 2 + 2 dense layers are a floor under its traffic that
// no budget lowers.
//
// Fails where heads disagree, and where layers after the list was made look elsewhere.
//
// Decided where the sources differ or are silent: the paper's configuration (a quarter of the
// budget for the latest keys, 4 sinks) rather than the program's defaults; fractions are cut. The
// correction layer depends on the model (13 for Llama-3.1-8B); a model with fewer layers has none.
// Decode: the budget covers everything, the current token included among the latest. Chunked
// prefill and verification: mean logits over the chunk's queries, the list covers the past, the
// chunk is forced beside the budget. Where a selection layer has a sliding window, the next layer
// without one takes its part. Lists live in the call's context, one per budget: nothing of an
// earlier token can be used by accident. Keys that only some KV heads still hold stay with those.

#include <algorithm>
#include <cmath>

#include "core/attention/topk.hpp"
#include "core/base/error.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/linear_scores.hpp"
#include "core/selectors/list_builders.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/selectors/shared_scores.hpp"

namespace kvscope {

namespace {

class LessIsMore final : public Selector {
 public:
  Index dense_layers_ = option(dense_layers_, "dense-layers", 2,
                               "leading layers kept dense; the next one selects", at_least(0));
  Index correction_layer_ =
      option(correction_layer_, "correction-layer", 13, "second layer that selects", at_least(0));
  Index n_sink_ = first_tokens_option(n_sink_);
  double merged_share_ = option(
      merged_share_, "merged-share", 0.75,
      "share of the budget that heads fill by rank; the latest keys get the rest", in(0.0, 1.0));

  SelectorCaps caps() const override {
    return {.owner = ListOwner::layer,
            .cross_layer = true,
            .budgets = kTokenBudgets,
            .forced_inside_budget = true,
            .dense_layers = dense_layers_};
  }
  void reset(const AttentionShape& shape) override {
    first_layer_ = shape.next_asked(dense_layers_);
    second_layer_ = shape.next_asked(correction_layer_);
  }

  std::vector<Selection> do_select_budgets(SelectCall call,
                                           std::span<const Budget> budgets) override {
    std::vector<Selection> selections;
    if (selects(call.layer)) {
      make_lists(call, budgets);
      for (std::size_t i = 0; i < budgets.size(); ++i)
        selections.push_back(dense_selection(call, ListOwner::layer));
      return selections;
    }
    for (const Budget& budget : budgets) selections.push_back(latest_list(call, budget));
    return selections;
  }

  HostRows host_rows() const override { return HostRows::queries; }
  SelectCost cost(const SelectCall& call, const Selection&) const override {
    if (!selects(call.layer)) return {};
    return exact_scoring_cost(call, scored_range(call), call.n_tok);
  }

 private:
  bool selects(Index layer) const {
    return layer == first_layer_ || (layer == second_layer_ && layer > first_layer_);
  }
  static TokenRange scored_range(const SelectCall& call) {
    return is_decode(call) ? TokenRange{0, call.pos_begin + 1} : TokenRange{0, call.pos_begin};
  }
  static std::string key_of(const Budget& budget) { return "lessismore " + budget.to_string(); }

  /// How a budget is divided among n_keys: [0, n_sink), n_merged keys between, [recent_begin,
  /// n_keys).
  struct Parts {
    Index n_sink = 0;
    Index n_merged = 0;
    Index recent_begin = 0;
  };
  Parts parts_of(const Budget& budget, Index n_keys) const {
    const Index k = budget.tokens(n_keys, /*page_size=*/1);
    if (k >= n_keys) return {0, n_keys, n_keys};
    const auto n_merged = static_cast<Index>(std::floor(merged_share_ * static_cast<double>(k)));
    const Index n_recent = k - n_merged;
    const Index n_sink = n_recent >= n_sink_ ? n_sink_ : 0;
    return {n_sink, n_merged, n_keys - (n_recent - n_sink)};
  }

  void make_lists(const SelectCall& call, std::span<const Budget> budgets) {
    CrossLayerContext& context = context_of(call, name());
    const TokenRange keys = scored_range(call);
    const Index n_q = call.q.dim(0);
    const Index group = n_q / call.k.dim(0);
    ScoreEngine& engine = engine_of(call);
    const auto n_keys = static_cast<std::size_t>(keys.size());
    const auto memory = engine.scratch<double>(ScoreEngine::Use::scores_of_owners,
                                               static_cast<std::size_t>(n_q) * n_keys);
    std::vector<std::span<double>> logits;  // [n_q][n_keys]
    std::vector<double> queries;
    for (Index q_head = 0; q_head < n_q; ++q_head) {
      logits.push_back(memory.subspan(static_cast<std::size_t>(q_head) * n_keys, n_keys));
      const std::vector<double> mean = mean_query(call, {q_head, q_head + 1});
      queries.insert(queries.end(), mean.begin(), mean.end());
    }
    linear_scores(call, queries, keys, logits);
    std::vector<std::vector<std::vector<Index>>> ranked(
        budgets.size(), std::vector<std::vector<Index>>(logits.size()));
    engine.run(n_q, [&](Index q_head, ScoreWorker&) {
      const auto head = static_cast<std::size_t>(q_head);
      mask_dead(call, q_head / group, keys, logits[head]);
      for (std::size_t i = 0; i < budgets.size(); ++i)
        ranked[i][head] = best_first(logits[head], parts_of(budgets[i], keys.size()));
    });
    for (std::size_t i = 0; i < budgets.size(); ++i)
      context.lists[key_of(budgets[i])] = make_list(ranked[i], budgets[i], keys.size());
  }

  /// The best keys of one head between sinks and latest keys, by falling logit, as places in that
  /// part; equal ones in order.
  static std::vector<Index> best_first(std::span<const double> logits, const Parts& parts) {
    const auto middle = logits.subspan(
        static_cast<std::size_t>(parts.n_sink),
        static_cast<std::size_t>(std::max(parts.n_sink, parts.recent_begin) - parts.n_sink));
    return top_k(middle, parts.n_merged);
  }

  /// Sinks, merged keys and latest keys, ascending. ranked: best_first of each head.
  std::vector<KeyPos> make_list(const std::vector<std::vector<Index>>& ranked, const Budget& budget,
                                Index n_keys) const {
    const Parts parts = parts_of(budget, n_keys);
    std::vector<bool> is_kept(static_cast<std::size_t>(n_keys), false);
    std::fill(is_kept.begin(), is_kept.begin() + parts.n_sink, true);
    std::fill(is_kept.begin() + parts.recent_begin, is_kept.end(), true);
    merge_by_rank(ranked, parts, is_kept);
    std::vector<KeyPos> list;
    for (Index pos = 0; pos < n_keys; ++pos) {
      if (is_kept[static_cast<std::size_t>(pos)]) list.push_back(static_cast<KeyPos>(pos));
    }
    return list;
  }

  static void merge_by_rank(const std::vector<std::vector<Index>>& ranked, const Parts& parts,
                            std::vector<bool>& is_kept) {
    Index n_left = parts.n_merged;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(parts.n_merged) && n_left > 0;
         ++rank) {
      for (const auto& head : ranked) {
        if (n_left == 0) return;
        if (rank >= head.size()) continue;
        const auto pos = static_cast<std::size_t>(parts.n_sink + head[rank]);
        if (is_kept[pos]) continue;
        is_kept[pos] = true;
        --n_left;
      }
    }
  }

  Selection latest_list(const SelectCall& call, const Budget& budget) const {
    const CrossLayerContext& context = context_of(call, name());
    const auto it = context.lists.find(key_of(budget));
    if (it == context.lists.end()) {
      throw ConfigError(
          "lessismore: layer {} uses the list that layer {} makes in the same call, which was "
          "not run before it",
          call.layer, first_layer_);
    }
    const TokenRange visible = call_range(call);
    const Parts parts = parts_of(budget, scored_range(call).size());
    KeyList list;
    for (const KeyPos pos : it->second) {
      if (pos < visible.begin) continue;
      (pos < parts.n_sink || pos >= parts.recent_begin ? list.forced : list.scored).push_back(pos);
    }
    if (!is_decode(call)) {
      std::vector<KeyPos> chunk;
      append_range(chunk, call.pos_begin, visible.end);
      force_keys(list, chunk);
    }
    Selection selection(ListOwner::layer, call.n_tok, call.n_tok);
    selection.add(list);
    return without_dead_keys(std::move(selection), call);
  }

  Index first_layer_ = 0;
  Index second_layer_ = 0;
};

}  // namespace

void register_lessismore(SelectorRegistry& registry) {
  registry.add<LessIsMore>(
      "lessismore", "LessIsMore: one list for heads and layers", "arXiv 2508.07101",
      "two layers choose keys for all heads, the other layers reuse the choice");
}

}  // namespace kvscope
