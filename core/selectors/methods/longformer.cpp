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

struct LongformerOptions {
  Index window = 512;
  Index dilation = 1;
  Index n_global = 4;
  PatternSize sizes = PatternSize::options;
  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"window", "keys that a query sees looking back, itself included"}.at_least(1),
          self.window);
    visit(Field{"dilation", "distance between keys of the window"}.at_least(1), self.dilation);
    visit(
        Field{"n-global", "first tokens that every query sees and that see everything"}.at_least(0),
        self.n_global);
    visit(Field{"sizes", "window from the options, or the budget less the global tokens"},
          self.sizes);
  }
};

class Longformer final : public Selector {
 public:
  explicit Longformer(const LongformerOptions& options) : options_(options) {}
  std::string_view name() const override { return "longformer"; }
  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.prefill = caps.decode = caps.verify = true;
    caps.owner = ListOwner::layer;
    caps.is_static = true;
    if (options_.sizes == PatternSize::budget)
      caps.budgets = {Budget::Kind::tokens, Budget::Kind::ratio};
    caps.forced_inside_budget = true;
    return caps;
  }
  void reset(const AttentionShape&) override {}

  Selection select(const SelectCall& call) override {
    return select_rows(call, [&](Index pos) {
      Index n_global = std::min(options_.n_global, pos + 1);
      Index window = options_.window;
      if (options_.sizes == PatternSize::budget) {
        const Index budget = call.budget.tokens(pos + 1, /*page_size=*/1);
        n_global = std::min(n_global, budget);
        window = budget - n_global;
      }
      KeyList list;
      append_range(list.forced, 0, pos < n_global ? pos + 1 : n_global);
      // Never multiply the options: either may be as large as a whole number gets.
      const Index n_steps = std::min(window - 1, pos / options_.dilation);
      for (Index step = n_steps; step >= 0; --step) {
        const Index key = pos - step * options_.dilation;
        append_range(list.forced, key, key + 1);
      }
      return list;
    });
  }

  SelectCost cost(const SelectCall&, const Selection&) const override { return {}; }

 private:
  LongformerOptions options_;
};

}  // namespace

void register_longformer(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<Longformer, LongformerOptions>(
      "longformer", "Longformer: window and global tokens", "arXiv 2004.05150",
      "a sliding window and a few global tokens, without looking at the keys");
  entry.knobs = {{.sets = {{"sizes", "budget"}}}};
  entry.presets["longformer-dilated"] = {{"window", "256"}, {"dilation", "2"}};
}

}  // namespace kvscope
