// adakv: SnapKV with one budget per layer, divided over the heads by what they attend to (Feng et
// al., arXiv 2407.11550; official code, kvpress).
//
// Idea: the last queries of the prompt vote as in SnapKV; the pooled votes of all KV heads of a
// layer compete for the layer's budget (N tokens x n_kv), so that a head whose attention is spread
// gets more keys than one that looks at few. A floor keeps every head at a share of the even
// division. Prefill itself is full attention; decoded tokens are appended and never evicted.
//
// Cost per prefill call with T keys alive: 2 n_q w T d FLOPs and one read of them, n_kv T d b
// bytes. Stores nothing.
//
// Fails as SnapKV does when the question is not in the window; a head with flat votes takes keys
// that others would need.
//
// Decided where the sources differ or are silent: division=counts (the official code, default)
// counts how many of the layer's best N n_kv votes each head has, gives each head floor + (1 -
// floor) of its count and rounds to the layer's sum by the largest remainders (the code rounds each
// by itself); division=safeguard (kvpress) marks the best floor * N votes of each head as safe and
// lets the rest compete. Floor 0.2 in both. The code's `normalize` (votes times the share that an
// even budget would hold) is an option, off as in its class. Votes are summed over rows and
// averaged over the group; the window stays in every head, inside the budget; in chunked prefill
// the layer's cache is shrunk after every chunk, as SnapKV's is here. Equal votes: lowest position,
// then lowest head.
#include "core/selectors/head_budgets.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/window_votes.hpp"

namespace kvscope {

namespace {

using AdaDivision = BudgetDivision::Way;

class AdaKv final : public WindowVotes {
 public:
  AdaKv() : WindowVotes(32, 7, Pooling::max) {}
  double floor_ = option(floor_, "floor", 0.2, "share of an even division that every KV head gets",
                         in(0.0, 1.0));
  AdaDivision division_ =
      option(division_, "division", AdaDivision::counts,
             "counts: as the official code divides; safeguard: as kvpress does");
  bool normalize_ = option(normalize_, "normalize", false,
                           "votes of a head count by the share that an even budget would hold");

  SelectorCaps caps() const override { return evicting({.divides_budget = true}); }

 protected:
  std::vector<Index> shares(Index budget, std::span<const Contest> heads) const override {
    return divide_budget(budget, heads, {division_, floor_, normalize_});
  }
};

}  // namespace

void register_adakv(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<AdaKv>(
      "adakv", "Ada-KV: one budget for a layer's heads", "arXiv 2407.11550",
      "SnapKV whose heads compete for the layer's budget, above a floor for each");
  entry.family = MethodFamily::budgets;
  entry.presets["adakv-kvpress"] = {
      {"division", "safeguard"}, {"window", "64"}, {"kernel", "5"}, {"pooling", "average"}};
}

}  // namespace kvscope
