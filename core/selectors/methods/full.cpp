// full: every visible key. The ceiling that all other methods are compared with.
//
// Source: dense attention. Cost: no scoring; attends to everything. Stores nothing. Never
// fails, never saves.
#include <optional>

#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

struct FullOptions {
  template <class Self, class Visit>
  static void visit_fields(Self&, Visit&&) {}
};

class Full final : public Selector {
 public:
  explicit Full(const FullOptions&) {}
  std::string_view name() const override { return "full"; }
  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.prefill = caps.decode = caps.verify = true;
    caps.owner = ListOwner::layer;
    caps.is_static = true;
    return caps;
  }
  void reset(const AttentionShape&) override {}
  Selection select(const SelectCall& call) override {
    Selection selection;
    selection.owner = ListOwner::layer;
    selection.is_dense = true;
    selection.n_tok = call.n_tok;
    return selection;
  }
  SelectCost cost(const SelectCall&, const Selection&) const override { return {}; }
  std::optional<NativeRule> native_rule(const Budget&) const override { return NativeRule{}; }
};

}  // namespace

void register_full(SelectorRegistry& registry) {
  registry.add<Full, FullOptions>("full", "Full attention", "control",
                                  "every visible key: the reference of all comparisons");
}

}  // namespace kvscope
