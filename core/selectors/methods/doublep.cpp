// doublep: top-p over clusters of keys, then top-p among these for what is attended to key by key
// (Double-P, arXiv 2602.05191; from its abstract, a review and notes on it that agree on both
// stages; the paper's text was not at hand).
//
// Idea: clusters as RetroInfer's. Stage 1 estimates every cluster's attention as size * exp(q.c /
// sqrt d) and keeps the smallest set with a share p1 of it. Stage 2 spends exact attention only
// where it matters: among the kept clusters, the smallest set with a share p2 is attended to key by
// key, the others through centroid, size and mean value.
//
// Cost: as retroinfer's (core/selectors/methods/retroinfer.cpp), with the clusters that stage 2
// leaves estimated. The choice takes .4 to .7 of dense attention at 32k in decode (bench select; a
// loaded machine): every centroid is multiplied and sorted by weight twice, and clusters are turned
// into lists key by key.
//
// Fails as retroinfer does, and where centroids mislead: p1 is a share of the estimate, not of the
// attention.
//
// Decided where the sources are silent: the budget p is p1, refine is p2 (0.8: ours; no number was
// found); weights are the mean over the group's softmax, as lists and summaries are per KV head;
// both sets are exact nuclei of weights in 32 bits, ties by the lowest cluster; a share counts
// clustered keys only, since the first and the latest ones are attended to anyway.
#include <algorithm>
#include <iterator>

#include "core/attention/nucleus.hpp"
#include "core/selectors/cluster_lists.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

class DoubleP final : public ClusterSelector {
 public:
  using SharedOptions = ClusterListOptions;
  double refine_ = option(
      refine_, "refine", 0.8,
      "share of the kept clusters' estimate that is attended to key by key (p2); 1: all of it",
      in(1e-6, 1.0));

  SelectorCaps caps() const override {
    SelectorCaps caps = cluster_caps();
    caps.budgets = {Budget::Kind::mass};
    return caps;
  }

 protected:
  bool weighs_sizes() const override { return true; }

  Choice choose(const Budget& budget, std::span<const double> weights,
                std::span<const Index>) const override {
    const std::vector<float> all(weights.begin(), weights.end());
    const std::vector<Index> kept = nucleus(all, budget.value, NucleusMode::exact);
    std::vector<float> of_kept;
    for (const Index cluster : kept) of_kept.push_back(all[static_cast<std::size_t>(cluster)]);
    Choice choice;
    for (const Index i : nucleus(of_kept, refine_, NucleusMode::exact))
      choice.exact.push_back(kept[static_cast<std::size_t>(i)]);
    std::set_difference(kept.begin(), kept.end(), choice.exact.begin(), choice.exact.end(),
                        std::back_inserter(choice.estimated));
    return choice;
  }
};

}  // namespace

void register_doublep(SelectorRegistry& registry) {
  SelectorEntry& entry =
      registry.add<DoubleP>("doublep", "Double-P: top-p over clusters, twice", "arXiv 2602.05191",
                            "keeps clusters that hold a share of the estimated "
                            "attention, the best exactly, the others by centroid");
  entry.family = MethodFamily::summaries;
  registry.say_lacking("doublep", "its own shares for stage 2, which no source at hand states");
}

}  // namespace kvscope
