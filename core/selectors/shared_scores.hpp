// The base of methods that give every past key one score per list owner and keep the best: they
// score once for many budgets.
//
// A method says who owns lists (owner_of_call), what the scores are (score_keys or score_owners)
// and, if it differs from "the best k and the call's own keys", how they become a list (make_list).
// Dead keys never become part of a list; scores that use statistics over keys (a softmax, a mean)
// must leave dead keys out of these themselves.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/selectors/candidates.hpp"
#include "core/selectors/owners.hpp"

namespace kvscope {

class SharedScoreSelector : public Selector {
 public:
  std::string why_no_scores() const override { return ""; }
  std::vector<Selection> do_select_budgets(SelectCall call, std::span<const Budget> budgets) final;

 protected:
  using Owner = ListHeads;

  /// Who owns lists in this call: q_head or kv_head.
  virtual ListOwner owner_of_call(const SelectCall& call) const {
    (void)call;
    return ListOwner::kv_head;
  }
  /// The positions that get scores; past_range unless overridden.
  virtual TokenRange scored_range(const SelectCall& call) const { return past_range(call); }
  /// Sets the scores of what the KV head holds no key of any more to -infinity.
  virtual void leave_out_dead(const SelectCall& call, Index kv_head, TokenRange keys,
                              std::span<double> scores) const {
    mask_dead(call, kv_head, keys, scores);
  }
  /// Before a call's keys are scored, once: what all selections share.
  virtual void prepare(const SelectCall& call) { (void)call; }
  /// Before the first owner of a call, once per selection: what owners share is made here, since
  /// they are answered in parallel. `summaries` become part of the selection.
  virtual void begin_call(const SelectCall& call, Summaries& summaries) {
    (void)call, (void)summaries;
  }
  /// Scores of the positions in `keys`, [keys.size()], higher is better. Never NaN; -infinity: not
  /// a candidate. Called for several owners at a time.
  virtual std::vector<double> score_keys(const SelectCall& call, const Owner& owner,
                                         TokenRange keys, ScoreWorker& worker) {
    (void)call, (void)owner, (void)keys, (void)worker;
    return {};
  }
  /// Scores of all owners at once to `scores` [n_owners][keys.size()], for methods that make them
  /// together on all threads; false: score_keys makes them owner by owner. make_list must then not
  /// need what score_keys leaves in the worker.
  virtual bool score_owners(const SelectCall& call, ListOwner owner_kind, TokenRange keys,
                            std::span<const std::span<double>> scores) {
    (void)call, (void)owner_kind, (void)keys, (void)scores;
    return false;
  }
  /// True if the score of a key depends on no other key, so that threads may share an owner's keys.
  /// make_list must then not need what score_keys left in the worker.
  virtual bool scores_keys_apart() const { return false; }
  /// The list of one owner from its scores (dead keys at -infinity). Called right after score_keys
  /// of that owner with the same worker, once per budget. A budget of kind mass reads the scores
  /// as weights and keeps their nucleus. `summaries` are the selection's: an owner writes what
  /// belongs to its heads.
  virtual KeyList make_list(const SelectCall& call, const Owner& owner,
                            std::span<const double> scores, TokenRange keys, ScoreWorker& worker,
                            Summaries& summaries);
  /// Last change of a finished selection.
  virtual void finish(const SelectCall& call, Selection& selection) const {
    (void)call, (void)selection;
  }

 private:
  /// score_keys with the keys of an owner divided among threads; false where that is not allowed or
  /// does not pay.
  bool share_score_keys(const SelectCall& call, ListOwner owner_kind, TokenRange keys,
                        std::span<const std::span<double>> scores);
};

/// The mean over query heads and the call's rows of their queries, [d_head]: all that scores linear
/// in q need.
std::vector<double> mean_query(const SelectCall& call, TokenRange q_heads);

/// Adds factor * softmax weight of each position in `keys` to sums [keys.size()], for the query
/// heads and the rows (counted inside the call) given: exact scores, over the alive keys that each
/// row sees.
void add_softmax_weights(const SelectCall& call, TokenRange q_heads, Index kv_head,
                         std::span<const Index> rows, TokenRange keys, double factor, KeyDots& dots,
                         std::span<double> sums);

/// Softmax weights of one query row over `keys`: scores [keys.size()] in, weights out; dead and
/// invisible keys get 0. A row that sees no key of the range gets zeros. sink_logit:
/// sink_logit_of(call, q_head).
void softmax_over_visible(const SelectCall& call, Index kv_head, Index row, TokenRange keys,
                          std::span<double> scores, std::optional<double> sink_logit);

/// Calls visit(row, values) for rows of the call, which ascend: exact scaled scores of one query
/// head against the keys of row_range(call, row), dead keys included. most_rows: whose scores are
/// held at a time, for each of which a block of keys is transposed once.
void for_each_score_row(const SelectCall& call, Index q_head, Index kv_head,
                        std::span<const Index> rows, KeyDots& dots,
                        const std::function<void(Index, std::span<double>)>& visit,
                        std::size_t most_rows = 128);

/// All rows of the call, 0 .. n_tok - 1.
std::vector<Index> all_rows(const SelectCall& call);

/// [n_rows, d_head] of chosen rows of one query head, each times factor.
std::vector<double> query_rows(const SelectCall& call, Index q_head, std::span<const Index> rows,
                               double factor);

}  // namespace kvscope
