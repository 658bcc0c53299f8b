// The base of methods that rank clusters of keys: the best are attended to key by key, others
// through a summary (centroid, mean value, number of keys), the rest not at all (RetroInfer,
// Double-P).
//
// The first keys, the latest ones and those that wait for their segment are kept by rule. One list
// and one set of summaries per KV head; in verification all rows of the call share them. Decode and
// verification; prefill stays dense.
#pragma once

#include <span>
#include <vector>

#include "core/selectors/key_clusters.hpp"
#include "core/selectors/key_dots.hpp"
#include "core/selectors/selector.hpp"
#include "core/selectors/shared_options.hpp"

namespace kvscope {

struct ClusterListOptions {
  ClusterOptions clusters;
  Index n_sink = n_sink_option(n_sink, 4);
  Index n_recent = n_recent_option(n_recent, 64);
  Index seed = k_means_seed_option(seed);
  Index dense_layers = dense_layers_option(dense_layers);
};

class ClusterSelector : public Selector {
 public:
  using SharedOptions = ClusterListOptions;
  std::vector<Selection> do_select_budgets(SelectCall call, std::span<const Budget> budgets) final;
  SelectCost cost(const SelectCall& call, const Selection& selection) const final;

 protected:
  /// What becomes of clusters; those named in neither are dropped. Both ascending.
  struct Choice {
    std::vector<Index> exact;
    std::vector<Index> estimated;
  };
  /// True: a cluster weighs what all its keys would (its centroid's exponential times its size);
  /// false: what one would.
  virtual bool weighs_sizes() const = 0;
  /// weights [m]: mean over heads and rows of the softmax over clusters. sizes [m]: keys that
  /// count.
  virtual Choice choose(const Budget& budget, std::span<const double> weights,
                        std::span<const Index> sizes) const = 0;
  SelectorCaps cluster_caps() const;

 private:
  /// One KV head's part of a selection.
  struct Part {
    KeyList list;
    std::vector<Index> estimated;
  };
  std::vector<double> cluster_weights(const SelectCall& call, Index kv_head,
                                      const LiveClusters& clusters, KeyDots& dots) const;
  Part make_part(const SelectCall& call, Index kv_head, const LiveClusters& clusters,
                 TokenRange clustered, Choice choice) const;

  ClusterListOptions list_options_;
};

}  // namespace kvscope
