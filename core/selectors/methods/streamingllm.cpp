// streamingllm: attention sinks and a recent window (Xiao et al., arXiv 2309.17453).
//
// Idea: the first few tokens soak up attention whatever they say; keep them and the latest tokens,
// drop the rest. A budget of k tokens is n_sink sinks and k - n_sink recents, the running chunk
// included, per query row: query i sees j < n_sink and j > i - (k - n_sink). Permanent in the
// original; here the same keys stay visible by position, so nothing needs to be evicted for the
// lists to be right. Keys keep their true positions: the original's re-rotation by cache slot
// cannot be done on recorded keys.
// Cost: no scoring. Stores nothing. Fails on everything between the sinks and the window.
#include <algorithm>

#include "core/selectors/list_builders.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

namespace {

class StreamingLlm final : public Selector {
 public:
  Index n_sink_ = first_tokens_option(n_sink_);

  SelectorCaps caps() const override {
    return {.owner = ListOwner::layer,
            .is_static = true,
            .budgets = kTokenBudgets,
            .forced_inside_budget = true};
  }

  Selection do_select(const SelectCall& call) override {
    return select_rows(call, [&](Index pos) {
      const Index n_visible = pos + 1;
      const Index budget = call.budget.tokens(n_visible, /*page_size=*/1);
      const Index n_sink = std::min({n_sink_, budget, n_visible});
      KeyList list;
      append_range(list.forced, 0, n_sink);
      append_range(list.forced, std::max(n_sink, n_visible - (budget - n_sink)), n_visible);
      return list;
    });
  }
};

}  // namespace

void register_streamingllm(SelectorRegistry& registry) {
  registry.add<StreamingLlm>("streamingllm", "StreamingLLM: sinks and a recent window",
                             "arXiv 2309.17453",
                             "keeps the first tokens and the latest ones, whatever they mean");
}

}  // namespace kvscope
