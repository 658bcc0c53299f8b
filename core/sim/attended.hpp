// What a query really attends to under a selection, and the softmax weights it gives to that.
//
// A selection's lists serve many rows; the causal mask and the sliding window apply per row,
// afterwards. These functions are the one place where that is done.
#pragma once

#include <optional>
#include <vector>

#include "core/attention/score_rows.hpp"
#include "core/attention/selection.hpp"
#include "core/selectors/selector.hpp"

namespace kvscope {

/// The part of ascending `keys` that lies in `range`.
std::span<const KeyPos> inside(std::span<const KeyPos> keys, TokenRange range);

/// Scores of the summaries of a query head's KV head for one scaled query (f64 [d_head]): products
/// plus log_count. Empty where there are none, or where their share is stated.
std::vector<double> summary_scores(const Summaries& summaries, Index kv_head,
                                   std::span<const double> scaled_query, double score_cap);

/// Sorted keys of a row: the list of its owner (everything for a dense selection), cut to what the
/// query at pos_begin + row sees. group = n_q / n_kv.
std::vector<KeyPos> attended_keys(const Selection& selection, Index group, Index q_head,
                                  Index pos_begin, Index row, std::optional<Index> window);

/// Softmax weights over the attended keys, renormalised over the list (its weights and the
/// summaries count), in f64, one row at a time.
/// The keys of the list in use are gathered once: ask for the rows of one KV head after each other.
/// Views must outlive it; one thread only.
class ListProbs final : public ObservedProbs {
 public:
  /// `selection`: what the method chose for `call`.
  ListProbs(const SelectCall& call, const Selection& selection);
  void row(Index q_head, Index row, std::span<float> probs) const override;
  void add_votes(ListOwner owner, TokenRange rows, double factor,
                 std::span<std::vector<double>> sums) const override;

 private:
  struct Gathered {
    Index kv_head;
    const KeyPos* list;        // where the list lies that was gathered; null for a dense selection
    std::vector<KeyPos> keys;  // ascending
    std::span<const float> log_weight;
    std::optional<KeyTable> table;  // of those keys, in order
  };
  const Gathered& gathered(Index q_head, Index row) const;
  const SelectCall& call_;
  const Selection& selection_;
  Index group_;
  mutable std::optional<Gathered> gathered_;
  mutable ScoreRows scores_;
};

}  // namespace kvscope
