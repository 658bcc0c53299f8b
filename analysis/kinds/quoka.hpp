// QuoKA replayed on a recorded prefill: the selector is run on every chunk, and what it looked at
// is kept: its representative queries, the score of every key, the keys it chose, and how much
// attention they hold. Open loop: every layer sees the dense model's q and k, errors do not
// compound.
#pragma once

#include "analysis/base/analysis.hpp"
#include "core/attention/quoka_scores.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope {

/// What competes for the budget.
enum class QuokaScope {
  past_plus_chunk,  // the keys before the chunk; the chunk itself is attended densely and costs no
                    // budget
  whole_cache,      // the chunk's own keys compete too (the paper's listing, taken literally)
};

/// How the number of kept keys is given.
enum class BudgetKind { tokens, ratio };

/// What happens in decode steps.
enum class QuokaDecode {
  select,  // each step is a chunk of one query
  dense,   // QuoKA is used in prefill only
};

struct QuokaOptions : QuokaRules {
  using SharedOptions = QuokaRules;
  Index chunk =
      option(chunk, "chunk", 128, "B_CP: prompt tokens per prefill chunk", in(1, 100'000'000));
  BudgetKind budget_kind = option(
      budget_kind, "budget-kind", BudgetKind::tokens,
      "keys kept per KV head and chunk: tokens (--budget) or ratio (--ratio of the candidates)");
  Index budget =
      option(budget, "budget", 1024, "B_SA: keys kept per KV head and chunk", in(1, 1'000'000'000));
  double ratio = option(ratio, "ratio", 0.25,
                        "with --budget-kind ratio: share of the candidates kept", in(0.0, 1.0));
  QuokaScope scope = option(
      scope, "scope", QuokaScope::past_plus_chunk,
      "candidates: past_plus_chunk (past keys; the chunk is dense on top) or whole_cache (the "
      "chunk's keys compete too)");
  QuokaDecode decode = option(decode, "decode", QuokaDecode::select,
                              "decoded positions: select (chunks of one query) or dense");
  bool store_key_scores =
      option(store_key_scores, "store-key-scores", true, "keep S-hat of every key in the result");

  /// The selector that is run, and what it may keep of a chunk's candidates.
  MethodSpec method() const;
  Budget kept_per_chunk() const;
  /// Queries that may score a chunk's keys, at most.
  Index most_queries() const { return queries == QuokaQueryChoice::all ? chunk : n_queries; }
};

/// Arrays. Layers that stay dense (sliding-window ones among them) hold NaN scores, selected
/// positions -1 and mass 1.
///
/// [layer, q_head, pos]
///   s_q             -cos(q, mean query of its chunk): what the selection goes by
///   s_q_prompt      -cos(q, mean query of the whole prompt): the paper's figure 2
///   mass            attention on the kept keys
///   log_max_weight  log of the largest probability, key 0 left out, not renormalised
///   breadth         exp(entropy) of the row
///
/// [layer, q_head, chunk, slot]
///   selected_queries  positions in slot order; -1 where a chunk has fewer queries
///
/// [layer, kv_head, entry], chunk c at entries offsets[c] to offsets[c + 1]
///   key_scores/values, key_scores/offsets    S-hat of the candidates 0, 1, 2, ...; -infinity for
///                    one that no chosen query may score
///   selected/positions, selected/offsets     kept positions, ascending; -1 fills up a chunk
///
/// [layer, kv_head, chunk], and available [chunk]
///   oracle_recall   kept share of the keys of largest weight; NaN where the budget cuts nothing
///   loaded          keys loaded, own positions that whole_cache forces not counted
///   sink_selected   1 if key 0 is kept
///
/// [layer, q_head], S_q of the prompt's mean against the largest weight, without query 0
///   correlation/pearson, correlation/pearson_log, correlation/spearman (the same for the log)
///   correlation/partial_log        given the position
///   correlation/chunk_pearson_log  the last whole chunk alone, against its own mean
///
/// Throws ConfigError for options out of range or a trace without all heads, q and k;
/// Interrupted on a stop.
nlohmann::ordered_json analyze_quoka(const TraceSource& trace, const QuokaOptions& options,
                                     const AnalysisRun& run);

}  // namespace kvscope
