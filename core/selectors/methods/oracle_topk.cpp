// oracle-topk: the k keys of largest exact attention. The ceiling of token methods at equal size.
//
// Idea: score everything exactly and keep the best k.
//   per_q_head: per query head and row: no list of that size holds more attention mass
//   per_group_sum: per KV head and row, by the sum of the group's softmax weights
//   per_group_max: the same by the largest of them
//   per_chunk: per KV head, one list for all rows of the call, by the mean softmax weight over rows
//     and group
//
// The variants differ and are named wherever they are shown: mean logits and mean weights rank
// differently.
//
// scope=past scores the keys before the call and forces the call's own beside the budget, as QuoKA
// and its kind do (always so in per_chunk); scope=all lets every visible key compete inside the
// budget.
//
// Cost: full scoring, 2 n_q n_tok T d FLOPs and one read of all keys. Stores nothing.
//
// Optimal for retained mass, not for the output's error: values are not looked at.
#include <algorithm>

#include "core/selectors/cost_units.hpp"
#include "core/selectors/key_lists.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/selectors/shared_scores.hpp"

namespace kvscope {

namespace {

enum class OracleVariant { per_q_head, per_group_sum, per_group_max, per_chunk };
enum class OracleScope { all, past };

class OracleTopk final : public Selector {
 public:
  OracleVariant variant_ = option(variant_, "variant", OracleVariant::per_q_head,
                                  "what shares a list and how weights are combined");
  OracleScope scope_ = option(
      scope_, "scope", OracleScope::all,
      "all: every visible key competes; past: the call's own keys are forced on top of the budget");
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override {
    return {.owner = list_owner(),
            .uses_pool = true,
            .budgets = kTokenBudgets,
            .forced_inside_budget = !forces_chunk(),
            .dense_layers = dense_layers_};
  }
  std::optional<ListPlan> plan(const Budget& budget, Phase) const override {
    if (budget.kind != Budget::Kind::tokens || variant_ != OracleVariant::per_q_head)
      return std::nullopt;
    return ListPlan{.by = ListPlan::By::attention,
                    .budget = static_cast<Index>(budget.value),
                    .forces_own = forces_chunk()};
  }
  HostRows host_rows() const override { return HostRows::none; }
  std::string why_no_scores() const override {
    return variant_ == OracleVariant::per_q_head ? "" : "ranks by weights that it does not show";
  }

  std::vector<Selection> do_select_budgets(SelectCall call,
                                           std::span<const Budget> budgets) override {
    if (call.trace != nullptr) begin_trace(call);
    const Index rows_per_list = variant_ == OracleVariant::per_chunk ? call.n_tok : 1;
    remote_sums_.clear();
    if (call.remote != nullptr && variant_ == OracleVariant::per_chunk)
      remote_sums_ = call.remote->softmax_votes({}, 0, call.n_tok);
    return select_by_owner(
        call, list_owner(), rows_per_list, budgets.size(),
        [&](const ListHeads& heads, ScoreWorker& worker, std::span<Selection> selections) {
          add_owner(call, heads, budgets, worker.dots, selections);
        });
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    return exact_scoring_cost(call, call_range(call), call.n_tok);
  }

 private:
  ListOwner list_owner() const {
    return variant_ == OracleVariant::per_q_head ? ListOwner::q_head : ListOwner::kv_head;
  }
  bool forces_chunk() const {
    return scope_ == OracleScope::past || variant_ == OracleVariant::per_chunk;
  }

  /// The trace holds the scores of a single query: a chunk has a list per row.
  void begin_trace(const SelectCall& call) const {
    if (variant_ != OracleVariant::per_q_head || call.n_tok != 1) return;
    const TokenRange visible = row_range(call, 0);
    call.trace->scored = {visible.begin,
                          forces_chunk() ? std::max(visible.begin, call.pos_begin) : visible.end};
    call.trace->scores.resize(static_cast<std::size_t>(call.q.dim(0)));
  }
  static void trace_row(const SelectCall& call, Index q_head, std::span<const double> scores) {
    std::vector<double> row(scores.begin(), scores.begin() + call.trace->scored.size());
    mask_dead(call, q_head * call.k.dim(0) / call.q.dim(0), call.trace->scored, row);
    call.trace->scores[static_cast<std::size_t>(q_head)] = std::move(row);
  }

  /// Memory for the lists of all owners whose selections lie together.
  void reserve(const SelectCall& call, std::span<const Budget> budgets,
               std::span<Selection> selections) const {
    const TokenRange seen = call_range(call);
    const bool lie_together = engine_of(call).n_workers() == 1;
    const Index n_owners = list_owner() == ListOwner::q_head ? call.q.dim(0) : call.k.dim(0);
    const Index n_lists = variant_ == OracleVariant::per_chunk ? 1 : call.n_tok;
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      const Index n_keys = std::min(seen.size(), budgets[i].tokens(seen.size(), /*page_size=*/1) +
                                                     (forces_chunk() ? call.n_tok : Index{0}));
      selections[i].reserve(
          static_cast<std::size_t>(n_lists * n_keys * (lie_together ? n_owners : 1)));
    }
  }

  /// The lists of one owner, appended to `selections`.
  void add_owner(const SelectCall& call, const ListHeads& heads, std::span<const Budget> budgets,
                 KeyDots& dots, std::span<Selection> selections) const {
    const auto [index, q_heads, kv_head] = heads;
    if (selections.front().n_lists() == 0) reserve(call, budgets, selections);
    if (variant_ != OracleVariant::per_chunk) {
      add_rows(call, q_heads, kv_head, budgets, dots, selections);
      return;
    }
    const TokenRange keys = past_range(call);
    std::vector<double> sums(static_cast<std::size_t>(keys.size()), 0.0);
    if (remote_sums_.empty()) {
      add_softmax_weights(call, q_heads, kv_head, all_rows(call), keys, 1.0, dots, sums);
    } else {
      std::copy_n(remote_sums_[static_cast<std::size_t>(kv_head)].begin(), sums.size(),
                  sums.begin());
    }
    add_lists(call, kv_head, keys, chunk_range(call), sums, budgets, selections);
  }

  /// One list per row. One query head ranks by its scores, as its weights do (underflow cannot make
  /// ties); a group ranks by its softmax weights, of which [n_tok][visible] are held.
  void add_rows(const SelectCall& call, TokenRange q_heads, Index kv_head,
                std::span<const Budget> budgets, KeyDots& dots,
                std::span<Selection> selections) const {
    if (q_heads.size() == 1 && variant_ == OracleVariant::per_q_head) {
      for_each_score_row(call, q_heads.begin, kv_head, all_rows(call), dots,
                         [&](Index row, std::span<double> scores) {
                           if (call.trace != nullptr && call.n_tok == 1)
                             trace_row(call, q_heads.begin, scores);
                           add_row(call, kv_head, row, scores, budgets, selections);
                         });
      return;
    }
    std::vector<std::vector<double>> combined(static_cast<std::size_t>(call.n_tok));
    for (Index q_head = q_heads.begin; q_head < q_heads.end; ++q_head) {
      for_each_score_row(
          call, q_head, kv_head, all_rows(call), dots, [&](Index row, std::span<double> values) {
            softmax_over_visible(call, kv_head, row, row_range(call, row), values,
                                 sink_logit_of(call, q_head));
            std::vector<double>& sums = combined[static_cast<std::size_t>(row)];
            sums.resize(values.size(), 0.0);
            for (std::size_t i = 0; i < values.size(); ++i) {
              sums[i] = variant_ == OracleVariant::per_group_max ? std::max(sums[i], values[i])
                                                                 : sums[i] + values[i];
            }
          });
    }
    for (Index row = 0; row < call.n_tok; ++row) {
      add_row(call, kv_head, row, combined[static_cast<std::size_t>(row)], budgets, selections);
    }
  }

  void add_row(const SelectCall& call, Index kv_head, Index row, std::span<double> scores,
               std::span<const Budget> budgets, std::span<Selection> selections) const {
    const TokenRange visible = row_range(call, row);
    const Index forced_begin =
        forces_chunk() ? std::max(visible.begin, call.pos_begin) : visible.end;
    const TokenRange keys{visible.begin, forced_begin};
    add_lists(call, kv_head, keys, {forced_begin, visible.end},
              scores.first(static_cast<std::size_t>(keys.size())), budgets, selections);
  }

  static void add_lists(const SelectCall& call, Index kv_head, TokenRange keys, TokenRange forced,
                        std::span<double> scores, std::span<const Budget> budgets,
                        std::span<Selection> selections) {
    mask_dead(call, kv_head, keys, scores);
    const Index n_candidates = count_candidates(call, kv_head, keys);
    const std::vector<KeyPos> forced_keys = candidates(call, kv_head, forced);
    std::vector<Index> sizes;
    for (const Budget& budget : budgets) {
      sizes.push_back(budget.tokens(n_candidates, /*page_size=*/1));
    }
    add_top_k_lists(scores, keys, sizes, forced_keys, selections);
  }

  KeyValues remote_sums_;  // [n_kv][keys] of the running call, where its keys lie elsewhere
};

}  // namespace

void register_oracle_topk(SelectorRegistry& registry) {
  SelectorEntry& entry =
      registry.add<OracleTopk>("oracle-topk", "Oracle: the best k keys", "control",
                               "keeps the keys that really get the most attention");
  entry.presets["oracle-topk-past"] = {{"scope", "past"}};
  entry.presets["oracle-topk-group"] = {{"variant", "per_group_sum"}};
  entry.presets["oracle-topk-chunk"] = {{"variant", "per_chunk"}};
}

}  // namespace kvscope
