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

class Recent final : public Selector {
 public:
  SelectorCaps caps() const override { return {.is_static = true, .budgets = kTokenBudgets}; }
  Selection do_select(const SelectCall& call) override {
    return select_past(call, [](Index, std::span<const KeyPos> past, Index n_keep) {
      return std::vector<KeyPos>(past.end() - n_keep, past.end());
    });
  }
};

}  // namespace

void register_recent(SelectorRegistry& registry) {
  registry.add<Recent>("recent", "Recent keys only", "control",
                       "keeps the latest keys before the call");
}

}  // namespace kvscope
