#include "core/selectors/every.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/learned.hpp"
#include "core/selectors/owners.hpp"

namespace kvscope {

namespace {

class Every final : public Selector {
 public:
  Every(Index n, std::unique_ptr<Selector> method) : n_(n), method_(std::move(method)) {
    const SelectorCaps caps = method_->caps();
    if (!caps.permanent && !caps.needs_probs) return;
    throw ConfigError("every: {} {}, so it must see each step", method_->name(),
                      caps.permanent ? "evicts keys for good" : "counts attention weights");
  }

  std::string_view name() const override { return method_->name(); }
  SelectorCaps caps() const override {
    SelectorCaps caps = method_->caps();
    caps.steps_per_choice = std::max(caps.steps_per_choice, n_);
    // What has come since a choice is forced beside it.
    caps.forced_inside_budget = caps.forced_inside_budget && n_ == 1;
    return caps;
  }
  std::string why_no_scores() const override {
    return n_ == 1 ? method_->why_no_scores()
                   : "has no scores in the steps between (put every behind)";
  }
  void calibrate(const TraceSource& text, std::span<const Index> layers,
                 ThreadPool& pool) override {
    method_->calibrate(text, layers, pool);
  }
  Learned learned() const override { return method_->learned(); }
  std::vector<ArtifactOrigin> artifacts() const override { return method_->artifacts(); }
  void reset(const AttentionShape& shape) override { method_->reset(shape); }

  std::vector<Selection> do_select_budgets(SelectCall call,
                                           std::span<const Budget> budgets) override {
    is_reused_ = false;
    if (call.phase == Phase::prefill) return method_->select_budgets(call, budgets);
    std::vector<Choice>& choices =
        engine_of(call).kept<Choices>(this, call.layer, /*kv_head=*/0).all;
    if (!choices.empty() && serves(choices.back(), call, budgets)) {
      is_reused_ = true;
      std::vector<Selection> selections;
      for (const Selection& selection : choices.back().selections)
        selections.push_back(reused(selection, choices.back().end, call));
      return selections;
    }
    std::vector<Selection> selections = method_->select_budgets(call, budgets);
    if (choices.size() == kKeptChoices) choices.erase(choices.begin());
    choices.push_back(
        {call.pos_begin, call.pos_begin + call.n_tok, {budgets.begin(), budgets.end()}, {}});
    for (const Selection& selection : selections)
      choices.back().selections.push_back(selection.clone());
    return selections;
  }

  /// Nothing is scored between choices; the lists of the last one are held (4 bytes per key) beside
  /// the method's metadata.
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    SelectCost cost = method_->cost(call, selection);
    if (is_reused_) cost.score_flops = cost.score_bytes = 0.0;
    const auto* const choices = engine_of(call).known<Choices>(this, call.layer, /*kv_head=*/0);
    if (choices == nullptr || choices->all.empty()) return cost;
    const Choice& last = choices->all.back();
    for (std::size_t i = 0; i < last.budgets.size(); ++i) {
      if (!is_same(last.budgets[i], call.budget)) continue;
      cost.metadata_bytes += static_cast<double>(last.selections[i].keys().size() * sizeof(KeyPos));
      break;
    }
    return cost;
  }

 private:
  /// Rollbacks that reach behind more choices than these lead to a new one.
  static constexpr std::size_t kKeptChoices = 8;

  struct Choice {
    Index begin = 0;  // positions of the call that chose
    Index end = 0;
    std::vector<Budget> budgets;
    std::vector<Selection> selections;  // [n_budgets]
  };
  struct Choices {
    std::vector<Choice> all;  // oldest first
    void truncate(Index n_keys) {
      while (!all.empty() && all.back().end > n_keys) all.pop_back();
    }
  };

  static bool is_same(const Budget& a, const Budget& b) {
    return a.kind == b.kind && a.value == b.value;
  }

  bool serves(const Choice& choice, const SelectCall& call, std::span<const Budget> budgets) const {
    if (choice.begin / n_ != call.pos_begin / n_ || choice.end > call.pos_begin) return false;
    if (!std::ranges::equal(choice.budgets, budgets, is_same)) return false;
    return std::ranges::all_of(
        choice.selections, [&](const Selection& selection) {  // shares are of each query
          return !selection.summaries.has_stated_share() || selection.n_tok == call.n_tok;
        });
  }

  /// The lists of the choosing call's last query, and the positions from `end` on as forced keys.
  static Selection reused(const Selection& choice, Index end, const SelectCall& call) {
    if (choice.is_dense) return dense_selection(call, choice.owner);
    const Index n_kv = call.k.dim(0);
    const Index n_owners = choice.n_lists() / choice.n_row_blocks();
    Selection again(choice.owner, call.n_tok, call.n_tok);
    again.summaries = choice.summaries.clone();
    for (Index owner = 0; owner < n_owners; ++owner) {
      const ListView list = choice.list(owner, choice.n_tok - 1);
      const Index kv_head = owner * n_kv / n_owners;
      const bool loses_none = choice.owner == ListOwner::layer || all_alive(call, kv_head);
      const auto stays = [&](Index key) { return loses_none || is_alive(call, kv_head, key); };
      KeyList kept = list.where(stays);
      for (Index pos = end; pos < call.pos_begin + call.n_tok; ++pos)
        if (stays(pos)) kept.forced.push_back(static_cast<KeyPos>(pos));
      again.add(kept);
    }
    return without_dead_keys(std::move(again), call);
  }

  Index n_;
  std::unique_ptr<Selector> method_;
  bool is_reused_ = false;  // in the last call
};

}  // namespace

std::unique_ptr<Selector> make_every(Index n, std::unique_ptr<Selector> method) {
  return std::make_unique<Every>(n, std::move(method));
}

}  // namespace kvscope
