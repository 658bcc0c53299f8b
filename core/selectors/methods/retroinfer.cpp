// retroinfer: clusters of keys, the best attended to exactly, the next ones estimated by their
// centroids (RetroInfer, PVLDB 19(5), arXiv 2505.02922; microsoft/RetrievalAttention).
//
// Idea: spherical k-means on the keys of a segment, one cluster for 16 of them. Clusters are ranked
// by the sum over the group of softmax(q.c / sqrt d). The best ones ("retrieval zone", 1.8 % as
// published) are attended to key by key; the next 23.2 % ("estimation zone") count as size *
// exp(q.c / sqrt d) with the mean of their values; the rest is dropped. The first 4 and the latest
// 64 keys, and those that no segment holds yet, are exact.
//
// Cost per call and layer with m clusters (T / 16) and e of them estimated: 2 n_q n_tok (m + e) d
// FLOPs; reads (m + e) d elements per KV head: all centroids, and the mean values of the estimated.
// Stores both and the sizes. Clustering a segment of S keys costs 2 S^2 / 16 d FLOPs a step of
// k-means: once when decode begins for up to 16384 keys together, then for every 1024 new ones,
// which makes one step in 1024 as long as a hundred others.
//
// Time of a choice over dense attention of one decode step at 32k keys (8 query and 2 KV heads of
// 64 channels, one thread): 0.25; making the clusters takes as long as a thousand such steps, once.
//
// Fails where one key among 16 is wanted: its centroid shows little of it. The estimate is low
// besides, since the mean of exponentials is above the exponential of the mean.
//
// Decided where the sources differ or are silent: a budget of tokens (or a ratio of the clustered
// keys) buys whole clusters, best first, until the next one does not fit, which then leads the
// estimated; published is ratio=0.018. The program's shares are of clusters, which hold 16 keys on
// average. Keys are centred by their segment's mean for k-means and enter with unit length; a
// centroid is the mean of its keys. A prompt longer than a segment is cut in equal ones. Keys that
// are not alive when their segment is made go to the nearest centroid without moving it; a cluster
// of which some keys are gone has the means of those that are left. Weights do not count sizes when
// clusters are ranked (Double-P's do).
#include <algorithm>
#include <numeric>

#include "core/attention/topk.hpp"
#include "core/selectors/cluster_lists.hpp"
#include "core/selectors/registry.hpp"

namespace kvscope {

namespace {

class RetroInfer final : public ClusterSelector {
 public:
  using SharedOptions = ClusterListOptions;
  double estimate_share_ =
      option(estimate_share_, "estimate-share", 0.232,
             "share of the clusters that is estimated by centroids; 0: none", in(0.0, 1.0));

  SelectorCaps caps() const override {
    SelectorCaps caps = cluster_caps();
    caps.budgets = kTokenBudgets;
    return caps;
  }

 protected:
  bool weighs_sizes() const override { return false; }

  Choice choose(const Budget& budget, std::span<const double> weights,
                std::span<const Index> sizes) const override {
    const std::vector<Index> order = top_k(weights, static_cast<Index>(weights.size()));
    Index left =
        budget.tokens(std::accumulate(sizes.begin(), sizes.end(), Index{0}), /*page_size=*/1);
    std::size_t n_exact = 0;
    while (n_exact < order.size() && sizes[static_cast<std::size_t>(order[n_exact])] <= left)
      left -= sizes[static_cast<std::size_t>(order[n_exact++])];
    const auto n_wanted =
        static_cast<std::size_t>(estimate_share_ * static_cast<double>(order.size()));
    const std::size_t n_both = std::min(order.size(), n_exact + n_wanted);
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(n_exact);
    Choice choice{{order.begin(), middle},
                  {middle, order.begin() + static_cast<std::ptrdiff_t>(n_both)}};
    std::sort(choice.exact.begin(), choice.exact.end());
    std::sort(choice.estimated.begin(), choice.estimated.end());
    return choice;
  }
};

}  // namespace

void register_retroinfer(SelectorRegistry& registry) {
  SelectorEntry& entry = registry.add<RetroInfer>(
      "retroinfer", "RetroInfer: clusters with estimation",
      "arXiv 2505.02922; microsoft/RetrievalAttention",
      "attends to the best clusters of keys exactly, and to the next ones through their centroids");
  entry.family = MethodFamily::summaries;
}

}  // namespace kvscope
