// ceiling: per row and query head, every key whose exact weight reaches one level, the same for all
// rows, heads and layers.
//
// Idea: of all ways to give out a number of keys over all rows, heads and layers together, the one
// that keeps the most attention takes the largest weights wherever they stand: a water level.
// oracle-topk gives every row as many keys, so that it loses where some rows need few and others
// many. At equal measured cost (--match keys=N) nothing keeps more of the attention, in the mean
// over rows, heads and layers, than this.
//
// Cost: full scoring, 2 n_q n_tok T d FLOPs and one read of all keys. Stores nothing.
//
// No ceiling of what is made of the attention: output error, perplexity and facts found can be
// better with other keys. A row without such a weight keeps nothing.
#include "core/selectors/candidates.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/exact_weights.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

namespace {

class Ceiling final : public Selector {
 public:
  double level_ = option(level_, "level", 1e-3, "the least weight that is kept", in(0.0, 1.0));
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override {
    return {.prefill = true,
            .decode = true,
            .verify = true,
            .owner = ListOwner::q_head,
            .dense_layers = dense_layers_};
  }

  std::vector<Selection> select_budgets(SelectCall call, std::span<const Budget> budgets) override {
    if (call.layer < dense_layers_)
      return dense_selections(call, ListOwner::q_head, budgets.size());
    return select_by_exact_weights(call, budgets.size(),
                                   [&](std::span<const float> weights, std::size_t) {
                                     std::vector<Index> kept;
                                     for (std::size_t key = 0; key < weights.size(); ++key) {
                                       if (static_cast<double>(weights[key]) >= level_)
                                         kept.push_back(static_cast<Index>(key));
                                     }
                                     return kept;
                                   });
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    return exact_scoring_cost(call, call_range(call), call.n_tok);
  }
};

}  // namespace

void register_ceiling(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<Ceiling>(
      "ceiling", "Ceiling: the largest weights of all rows, heads and layers", "control",
      "keeps every key whose real weight reaches one level, which is the most attention that so "
      "many keys can hold");
  entry.knobs = {{.option = "level", .low = 1e-9, .high = 1.0, .falls = true, .is_log = true}};
}

}  // namespace kvscope
