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

struct SinkRecentOptions {
  Index n_sink = 4;
  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"n-sink", "first tokens that are always kept, inside the budget"}.at_least(0),
          self.n_sink);
  }
};

class SinkRecent final : public Selector {
 public:
  explicit SinkRecent(const SinkRecentOptions& options) : options_(options) {}
  std::string_view name() const override { return "sink-recent"; }
  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.prefill = caps.decode = caps.verify = true;
    caps.is_static = true;
    caps.budgets = {Budget::Kind::tokens, Budget::Kind::ratio};
    return caps;
  }
  void reset(const AttentionShape&) override {}
  Selection select(const SelectCall& call) override {
    return select_past(call, [&](Index, std::span<const KeyPos> past, Index n_keep) {
      // Sinks are positions, not ranks: where they died or left the window, the room goes to recent
      // keys.
      const auto sinks_end = std::lower_bound(past.begin(), past.end(), options_.n_sink);
      const Index n_sink = std::min<Index>(sinks_end - past.begin(), n_keep);
      std::vector<KeyPos> keys(past.begin(), past.begin() + n_sink);
      keys.insert(keys.end(), past.end() - (n_keep - n_sink), past.end());
      return keys;
    });
  }
  SelectCost cost(const SelectCall&, const Selection&) const override { return {}; }

 private:
  SinkRecentOptions options_;
};

}  // namespace

void register_sink_recent(SelectorRegistry& registry) {
  registry.add<SinkRecent, SinkRecentOptions>(
      "sink-recent", "Sinks and recent keys", "control",
      "keeps the first keys and the latest ones before the call");
}

}  // namespace kvscope
