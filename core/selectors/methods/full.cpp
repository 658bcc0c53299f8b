// full: every visible key. The ceiling that all other methods are compared with.
//
// Source: dense attention. Cost: no scoring; attends to everything. Stores nothing. Never
// fails, never saves.

#include "core/selectors/candidates.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

class Full final : public Selector {
 public:
  SelectorCaps caps() const override { return {.owner = ListOwner::layer, .is_static = true}; }
  Selection do_select(const SelectCall& call) override {
    return dense_selection(call, ListOwner::layer);
  }
  std::optional<ListPlan> plan(const Budget&, Phase) const override { return ListPlan{}; }
};

}  // namespace

void register_full(SelectorRegistry& registry) {
  registry.add<Full>("full", "Full attention", "control",
                     "every visible key: the reference of all comparisons");
}

}  // namespace kvscope
