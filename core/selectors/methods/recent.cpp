// recent: the latest keys, nothing else (control).
//
// Idea: the budget's k keys are the k latest keys before the call; the call's own keys are forced
// on top, as with every method that scores the past. So it differs from the scored methods only in
// what it chooses. (streamingllm counts the running chunk inside its budget and moves the window
// with every query row.) Cost: no scoring. Stores nothing. Fails on everything that lies further
// back.
#include "core/selectors/list_builders.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

struct RecentOptions {
  template <class Self, class Visit>
  static void visit_fields(Self&, Visit&&) {}
};

class Recent final : public Selector {
 public:
  explicit Recent(const RecentOptions&) {}
  std::string_view name() const override { return "recent"; }
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
      return std::vector<KeyPos>(past.end() - n_keep, past.end());
    });
  }
  SelectCost cost(const SelectCall&, const Selection&) const override { return {}; }
};

}  // namespace

void register_recent(SelectorRegistry& registry) {
  registry.add<Recent, RecentOptions>("recent", "Recent keys only", "control",
                                      "keeps the latest keys before the call");
}

}  // namespace kvscope
