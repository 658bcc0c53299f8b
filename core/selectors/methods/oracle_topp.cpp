// oracle-topp: per row and query head, the smallest set of keys that holds a share p of the exact
// attention.
//
// Idea: the exact nucleus of the exact softmax row; equal weights by rising position; the key that
// crosses p is included.
//
// Cost: full scoring, 2 n_q n_tok T d FLOPs and one read of all keys. Stores nothing.
//
// The least that any method with an adaptive size needs. Weights are rounded to 32 bits before they
// are compared, so the mass kept may fall short of p by the last digits of that.
#include "core/attention/nucleus.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/exact_weights.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

namespace {

class OracleTopp final : public Selector {
 public:
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override {
    return {
        .owner = ListOwner::q_head, .budgets = {Budget::Kind::mass}, .dense_layers = dense_layers_};
  }

  std::vector<Selection> do_select_budgets(SelectCall call,
                                           std::span<const Budget> budgets) override {
    return select_by_exact_weights(call, budgets.size(), [&](const ExactRow& row, std::size_t i) {
      return nucleus(row.weights, budgets[i].value, NucleusMode::exact);
    });
  }

  std::optional<ListPlan> plan(const Budget& budget, Phase) const override {
    if (budget.kind != Budget::Kind::mass || budget.value >= 1.0) return std::nullopt;
    return ListPlan{.by = ListPlan::By::attention, .mass = budget.value};
  }
  HostRows host_rows() const override { return HostRows::none; }
  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    return exact_scoring_cost(call, call_range(call), call.n_tok);
  }
};

}  // namespace

void register_oracle_topp(SelectorRegistry& registry) {
  registry.add<OracleTopp>("oracle-topp", "Oracle: the smallest set of mass p", "control",
                           "keeps as few keys as hold a share p of the real attention");
}

}  // namespace kvscope
