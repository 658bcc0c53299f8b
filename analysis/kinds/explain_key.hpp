// Why a key was kept or dropped: one query of a recording, asked of a method, and for any key
// before it its weight, its score and rank, the cut-off, the page and its bound, its representative
// queries, and the budget that would have kept it. `kvscope explain TRACE` and the explorer's panel
// call the same functions.
//
// Open loop, as a replay: the layer sees the dense model's tensors. A query of the prompt is asked
// in its prefill chunk, with all queries of the chunk; a decoded one as a step of its own.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/fields.hpp"
#include "core/base/parallel.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

/// Where the question is asked, and of whom. References must outlive the answer's making only.
struct KeySources {
  const TraceSource& trace;
  const TraceSource* draft = nullptr;        // for methods that need it
  const TraceSource* calibration = nullptr;  // likewise
};

struct KeyQuestion {
  Index layer = 0;
  Index q_head = 0;
  Index query = 0;  // position
  MethodSpec selector;
  std::optional<Budget> budget;  // empty for methods that take none
  Index chunk = 128;             // B_CP
  std::optional<Index> dense_layers;
  bool as_step = false;  // the query is taken as a decode step even inside the prompt
  /// Cache key of this request: everything besides the traces that determines the answer.
  std::string cache_key() const;
};

/// One representative query of QuoKA: a row of its group's heads, averaged.
struct RepresentativeQuery {
  std::vector<Index> queries;   // [group] positions, by query head of the KV group
  std::vector<double> cosines;  // [group] of each with its head's mean query: low ones are chosen
};

/// What a method made of the query, and what dense attention does.
struct QueryLook {
  KeyQuestion question;
  TokenRange call;              // the positions asked about together
  TokenRange visible;           // keys that the query sees
  std::vector<double> logits;   // [visible.size()] scaled scores q.k
  std::vector<double> weights;  // [visible.size()] of the exact softmax

  bool is_dense = false;      // the method left this layer or call as it is
  std::string why_dense;      // a sentence, if it is
  std::string why_no_score;   // a sentence, if there are no scores
  TokenRange owner_heads;     // query heads that share the list
  std::vector<KeyPos> kept;   // attended keys, ascending, none after the query
  std::vector<bool> by_rule;  // [kept.size()] sinks, recent keys, the running chunk
  double kept_mass = 0.0;     // dense attention on them, of what keys get

  /// What the method ranks: keys, or pages of them; empty if it gives no score.
  Index page_size = 1;
  Index first_block = 0;
  std::vector<double> scores;  // [n_blocks]; -infinity: no candidate
  std::vector<bool> earned;    // [n_blocks] in the list because of its score
  Index n_earned = 0;
  double cut = 0.0;  // the smallest score in the list; NaN if no score earned a place
  std::vector<RepresentativeQuery>
      representatives;  // QuoKA: the representative queries of the KV head
  /// QuoKA: [n_blocks] the representative query of largest product; -1: none may score it.
  std::vector<Index> best_queries;

  bool has_scores() const { return !scores.empty(); }
  double weight(Index key) const;
  /// Block that holds a key; empty if it got no score.
  std::optional<std::size_t> block_of(Index key) const;
  /// Blocks by score, best first, of equal ones the first position: as methods rank.
  std::vector<Index> ranking() const;
  /// The heaviest keys of the query, at most n.
  std::vector<Index> heaviest(std::size_t n) const;
  std::size_t bytes() const;
};

enum class KeyEnd { unseen, dense, by_rule, kept, dropped };

/// "kept by rule".
std::string_view end_words(KeyEnd end);

/// What became of one key.
struct KeyOutcome {
  Index key = 0;
  KeyEnd end = KeyEnd::unseen;
  double weight = 0.0;
  double logit = 0.0;
  Index weight_rank = 0;  // place by weight among the visible keys, from 1; 0: unseen

  bool is_ranked = false;  // what follows holds
  double score = 0.0;      // of the key or its page
  Index rank = 0;          // from 1, of equal scores the first position
  Index n_ranked = 0;
  TokenRange page;          // visible keys of its page; the key alone where keys are ranked
  double page_logit = 0.0;  // the query's largest logit there
  std::optional<std::size_t> best_query;  // QuoKA: the representative query that gave it its score
};

/// Throws ConfigError for a layer, head or position that was not recorded, a method that does not
/// answer here or lacks its draft or calibration, a budget that it does not take; Interrupted on a
/// stop.
QueryLook look_at_query(const KeySources& sources, const KeyQuestion& question, ThreadPool& pool,
                        const std::stop_token& stop);

KeyOutcome outcome_of(const QueryLook& look, Index key);

/// The key of largest weight that was dropped, of equal ones the first position; empty if none
/// was. Takes one pass over the keys.
std::optional<Index> heaviest_dropped(const QueryLook& look);

/// The smallest number of tokens at which the method keeps the key, by asking it: of methods whose
/// scores do not depend on the budget by bisection to the token, of the others among powers of two.
/// Empty: no budget up to the whole context keeps it, or the method takes no tokens. A key that is
/// kept by rule needs 1.
struct KeepingBudget {
  std::optional<Index> tokens;
  bool is_exact = true;
  bool takes_tokens = true;
  std::size_t bytes() const { return sizeof *this; }
};
KeepingBudget budget_that_keeps(const KeySources& sources, const KeyQuestion& question, Index key,
                                ThreadPool& pool, const std::stop_token& stop);

/// What became of the key and why, in one or two sentences without names of tokens.
std::string outcome_sentence(const QueryLook& look, const KeyOutcome& outcome);
/// What only some methods add: the page's bound, the representative query that gave the key its
/// score; empty for the others. `name_of`: a position as its reader sees it.
std::string score_sentence(const QueryLook& look, const KeyOutcome& outcome,
                           const std::function<std::string(Index)>& name_of);
/// The budget's part: "A budget of 300 tokens would have kept it."
std::string budget_sentence(const KeyOutcome& outcome, const KeepingBudget& budget);

}  // namespace kvscope
