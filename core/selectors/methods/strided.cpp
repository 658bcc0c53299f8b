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

struct StridedOptions {
  template <class Self, class Visit>
  static void visit_fields(Self&, Visit&&) {}
};

class Strided final : public Selector {
 public:
  explicit Strided(const StridedOptions&) {}
  std::string_view name() const override { return "strided"; }
  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.prefill = caps.decode = caps.verify = true;
    caps.is_static = true;
    caps.budgets = {Budget::Kind::tokens, Budget::Kind::ratio};
    return caps;
  }
  void reset(const AttentionShape&) override {}
  Selection select(const SelectCall& call) override {
    return select_past(call, [](Index, std::span<const KeyPos> past, Index n_keep) {
      std::vector<KeyPos> keys;
      if (past.empty()) return keys;
      const auto step = (past.size() - 1) / static_cast<std::size_t>(n_keep) + 1;
      for (std::size_t i = 0; i < past.size(); i += step) keys.push_back(past[i]);
      return keys;
    });
  }
  SelectCost cost(const SelectCall&, const Selection&) const override { return {}; }
};

}  // namespace

void register_strided(SelectorRegistry& registry) {
  registry.add<Strided, StridedOptions>("strided", "Every n-th key", "control",
                                        "spreads the budget evenly over the past");
}

}  // namespace kvscope
