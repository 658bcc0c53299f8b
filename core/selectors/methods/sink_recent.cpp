// sink-recent: the first few keys and the latest ones (control).
//
// Idea: of the budget's k keys, n_sink are the first ones of the sequence and the others the latest
// before the call; the call's own keys are forced on top. The keys are StreamingLLM's (arXiv
// 2309.17453), the accounting is that of the methods that score the past: this is their control at
// the same budget. If k <= n_sink there are only sinks. Cost: no scoring. Stores nothing. Fails on
// everything between the sinks and the window.
#include <algorithm>

#include "core/selectors/list_builders.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

class SinkRecent final : public Selector {
 public:
  Index n_sink_ = option(n_sink_, "n-sink", 4,
                         "first tokens that are always kept, inside the budget", at_least(0));

  SelectorCaps caps() const override { return {.is_static = true, .budgets = kTokenBudgets}; }
  Selection do_select(const SelectCall& call) override {
    return select_past(call, [&](Index, std::span<const KeyPos> past, Index n_keep) {
      // Sinks are positions, not ranks: where they died or left the window, the room goes to recent
      // keys.
      const auto sinks_end = std::lower_bound(past.begin(), past.end(), n_sink_);
      const Index n_sink = std::min<Index>(sinks_end - past.begin(), n_keep);
      std::vector<KeyPos> keys(past.begin(), past.begin() + n_sink);
      keys.insert(keys.end(), past.end() - (n_keep - n_sink), past.end());
      return keys;
    });
  }
};

}  // namespace

void register_sink_recent(SelectorRegistry& registry) {
  registry.add<SinkRecent>("sink-recent", "Sinks and recent keys", "control",
                           "keeps the first keys and the latest ones before the call");
}

}  // namespace kvscope
