// minference-a-shape: the first tokens and a local window (Jiang et al., arXiv 2407.02490), one of
// MInference's patterns.
//
// Idea: in prefill, query i sees j < n_init and i - j < n_local; decode stays dense. The tri-shape
// variant leaves the last n_dense_rows queries of the prompt dense. Decided here: the "last
// queries" are those of the call, which is the prompt in one-shot prefill; with recorded chunks
// they are the last of every chunk. Sizes from the budget: n_local = k - n_init. Published sizes:
// kernel 128 / 3968, search candidates 100 / 800. Cost: no scoring. Stores nothing. Fails on
// everything between the first tokens and the window.
#include <algorithm>

#include "core/selectors/list_builders.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

class AShape final : public Selector {
 public:
  Index n_init_ = option(n_init_, "n-init", 128, "first tokens that every query sees", at_least(0));
  Index n_local_ = option(n_local_, "n-local", 3968,
                          "keys that a query sees looking back, itself included", at_least(1));
  Index n_dense_rows_ =
      option(n_dense_rows_, "n-dense-rows", 0,
             "last queries of the call that see everything (tri-shape)", at_least(0));
  PatternSize sizes_ = option(sizes_, "sizes", PatternSize::options,
                              "window from the options, or the budget less n-init");

  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.decode = caps.verify = false;
    caps.owner = ListOwner::layer;
    caps.is_static = true;
    if (sizes_ == PatternSize::budget) caps.budgets = kTokenBudgets;
    caps.forced_inside_budget = true;
    return caps;
  }

  Selection do_select(const SelectCall& call) override {
    const Index first_dense = call.pos_begin + std::max<Index>(0, call.n_tok - n_dense_rows_);
    return select_rows(call, [&](Index pos) {
      KeyList list;
      const Index n_visible = pos + 1;
      Index n_init = std::min(n_init_, n_visible);
      Index n_local = std::min(n_local_, n_visible);
      if (sizes_ == PatternSize::budget) {
        const Index budget = std::min(call.budget.tokens(n_visible, /*page_size=*/1), n_visible);
        n_init = std::min(n_init, budget);
        n_local = budget - n_init;
      }
      if (pos >= first_dense) n_init = n_visible;
      append_range(list.forced, 0, n_init);
      append_range(list.forced, n_visible - n_local, n_visible);
      return list;
    });
  }
};

}  // namespace

void register_minference_a_shape(SelectorRegistry& registry) {
  SelectorEntry& entry =
      registry.add<AShape>("minference-a-shape", "MInference: A-shape", "arXiv 2407.02490",
                           "in prefill, the first tokens and a local window");
  entry.settings = {{.sets = {{"sizes", "budget"}}}};
  entry.presets["minference-a-shape-search"] = {{"n-init", "100"}, {"n-local", "800"}};
  entry.presets["minference-tri-shape"] = {
      {"n-init", "128"}, {"n-local", "512"}, {"n-dense-rows", "100"}};
}

}  // namespace kvscope
