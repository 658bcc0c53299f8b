// One KV head's keys in clusters, segment by segment as the cache grows: centroids, mean values and
// members, which RetroInfer and Double-P rank and put in the place of keys.
//
// A segment is clustered when it is complete and stays as it is. What was clustered in a call that
// is taken back, wholly or in part, is forgotten with it.
#pragma once

#include <span>
#include <vector>

#include "core/base/rng.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

struct ClusterOptions {
  Index keys_per_cluster = option(keys_per_cluster, "keys-per-cluster", 16,
                                  "keys of a cluster, on average", in(1, 1 << 20));
  Index longest_segment =
      option(longest_segment, "build-segment", 16384,
             "keys that are clustered together when decode begins, at most", in(1, 1 << 30));
  Index next_segment =
      option(next_segment, "append-segment", 1024,
             "later keys that wait, attended to, until so many are clustered", in(1, 1 << 30));
  Index n_iterations = option(n_iterations, "iterations", 10, "steps of k-means", in(0, 1000));
};

/// The clusters of a call: keys that are alive and visible, clusters that have any. Good while the
/// KeyClusters that it came from is unchanged.
struct LiveClusters {
  Tensor<float> k;                               // [m, d_head] centroids: means of their keys
  Tensor<float> v;                               // [m, d_head] mean values
  std::vector<std::span<const KeyPos>> members;  // [m] ascending
  std::vector<std::vector<KeyPos>> cut;          // members of clusters that have lost some
  Index count() const { return static_cast<Index>(members.size()); }
};

class KeyClusters {
 public:
  /// Clusters the keys of `middle` that are new, if they are due: all at first, later when
  /// next_segment of them wait. Centroids are of keys that are alive now; the others are put to the
  /// nearest one. rng: of this layer and head.
  void extend(const SelectCall& call, Index kv_head, TokenRange middle,
              const ClusterOptions& options, const CounterRng& rng);
  /// Forgets what was clustered in calls that reached beyond n_keys.
  void truncate(Index n_keys);

  /// Positions that are in clusters.
  TokenRange range() const {
    return {begin_, segments_.empty() ? begin_ : segments_.back().range.end};
  }
  /// Clusters of the keys at positions >= begin.
  LiveClusters live(const SelectCall& call, Index kv_head, Index begin) const;
  /// How many these are.
  Index count_live(const SelectCall& call, Index kv_head, Index begin) const;

 private:
  struct Segment {
    TokenRange range;
    Index call_end = 0;  // keys when the call is over that it was made in
    std::vector<std::vector<KeyPos>> members;
    Tensor<float> k;  // [members.size(), d_head], of the keys that were alive
    Tensor<float> v;
    std::vector<Index> n_meant;  // keys in these means
  };
  static Segment cluster(const SelectCall& call, Index kv_head, TokenRange range,
                         const ClusterOptions& options, const CounterRng& rng);
  Index begin_ = 0;
  std::vector<Segment> segments_;
};

}  // namespace kvscope
