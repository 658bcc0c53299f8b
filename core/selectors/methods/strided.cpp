// strided: every n-th key (control for methods that select pages).
//
// Idea: with n past keys and a budget of k, take past keys 0, s, 2s, ... with s = ceil(n / k): at
// most k keys spread evenly, so each page is represented and none is complete. Counted among the
// keys that are alive, from the first one. Cost: no scoring. Stores nothing. Fails on everything
// local; finds a needle with probability k / n.
#include "core/selectors/list_builders.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

class Strided final : public Selector {
 public:
  SelectorCaps caps() const override { return {.is_static = true, .budgets = kTokenBudgets}; }
  Selection do_select(const SelectCall& call) override {
    return select_past(call, [](Index, std::span<const KeyPos> past, Index n_keep) {
      std::vector<KeyPos> keys;
      if (past.empty()) return keys;
      const auto step = (past.size() - 1) / static_cast<std::size_t>(n_keep) + 1;
      for (std::size_t i = 0; i < past.size(); i += step) keys.push_back(past[i]);
      return keys;
    });
  }
};

}  // namespace

void register_strided(SelectorRegistry& registry) {
  registry.add<Strided>("strided", "Every n-th key", "control",
                        "spreads the budget evenly over the past");
}

}  // namespace kvscope
