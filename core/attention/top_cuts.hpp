// Who is among the k best, for many k at once, without ranking anything: the score where Top_k
// ends.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Where Top_k of a row ends: scores above `score` are in, equal ones up to index `last_tie`.
struct TopCut {
  double score = 0.0;
  Index last_tie = -1;
  bool contains(double x, Index index) const {
    return (x > score) | ((x == score) & (index <= last_tie));
  }
};

/// Scores are counted in buckets of equal width between the smallest and the largest; only buckets
/// in which a cut lies are sorted. Keep one per worker: its memory is reused.
class TopCuts {
 public:
  /// Cuts of each k, in the order of `ks`; the same sets as top_k gives (ties by rising index, -inf
  /// is never in). O(n + ks) unless the scores crowd in a few buckets (then up to n log n). Scores
  /// must not be NaN. Valid until the next call.
  std::span<const TopCut> find(std::span<const double> scores, std::span<const Index> ks);

 private:
  struct Candidate {
    double score;
    Index index;
  };
  void count(std::span<const double> scores);
  void collect(std::span<const double> scores);
  Index n_buckets_ = 0;
  std::vector<std::int32_t> bucket_of_;  // [n]; 0 = no candidate, the best scores are in the last
  std::vector<std::int32_t> n_in_;       // [n_buckets_ + 1]
  std::vector<std::int32_t> slot_;       // [n_buckets_ + 1] place in members_ + 1; 0 = no cut in it
  std::vector<std::int32_t> wanted_;     // the buckets with a slot
  std::vector<std::int32_t> found_;      // positions of their scores
  std::vector<std::vector<Candidate>> members_;  // of the buckets with a cut, best first
  std::vector<std::pair<std::int32_t, std::int32_t>> place_;  // [ks] bucket and rank in it
  std::vector<std::size_t> order_;
  std::vector<TopCut> cuts_;
};

/// Indices of the members of Top_k, ascending; `cut` is that of k.
std::vector<Index> members(std::span<const double> scores, const TopCut& cut, Index k);

}  // namespace kvscope
