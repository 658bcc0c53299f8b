// longformer: a sliding window, perhaps dilated, and a few global tokens (Beltagy et al., arXiv
// 2004.05150).
//
// Idea: query i sees the keys j with (i - j) divisible by the dilation D and (i - j) / D < w, and
// the first n_global tokens; the global tokens' own rows see everything. Causal adaptation: one
// side of the window. The original gives global attention its own trained projections; without
// training only the pattern can be copied. Sizes from the budget: w = k - n_global for a budget of
// k tokens per row. Cost: no scoring. Stores nothing. Fails on everything outside the pattern,
// whatever it says.
#include <algorithm>

#include "core/selectors/list_builders.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

class Longformer final : public Selector {
 public:
  Index window_ = option(window_, "window", 512,
                         "keys that a query sees looking back, itself included", at_least(1));
  Index dilation_ =
      option(dilation_, "dilation", 1, "distance between keys of the window", at_least(1));
  Index n_global_ =
      option(n_global_, "n-global", 4, "first tokens that every query sees and that see everything",
             at_least(0));
  PatternSize sizes_ = option(sizes_, "sizes", PatternSize::options,
                              "window from the options, or the budget less the global tokens");

  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.owner = ListOwner::layer;
    caps.is_static = true;
    if (sizes_ == PatternSize::budget) caps.budgets = kTokenBudgets;
    caps.forced_inside_budget = true;
    return caps;
  }

  Selection do_select(const SelectCall& call) override {
    return select_rows(call, [&](Index pos) {
      Index n_global = std::min(n_global_, pos + 1);
      Index window = window_;
      if (sizes_ == PatternSize::budget) {
        const Index budget = call.budget.tokens(pos + 1, /*page_size=*/1);
        n_global = std::min(n_global, budget);
        window = budget - n_global;
      }
      KeyList list;
      append_range(list.forced, 0, pos < n_global ? pos + 1 : n_global);
      // Never multiply the options: either may be as large as a whole number gets.
      const Index n_steps = std::min(window - 1, pos / dilation_);
      for (Index step = n_steps; step >= 0; --step) {
        const Index key = pos - step * dilation_;
        append_range(list.forced, key, key + 1);
      }
      return list;
    });
  }
};

}  // namespace

void register_longformer(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<Longformer>(
      "longformer", "Longformer: window and global tokens", "arXiv 2004.05150",
      "a sliding window and a few global tokens, without looking at the keys");
  entry.settings = {{.sets = {{"sizes", "budget"}}}};
  entry.presets["longformer-dilated"] = {{"window", "256"}, {"dilation", "2"}};
}

}  // namespace kvscope
