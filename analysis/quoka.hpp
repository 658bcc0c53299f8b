// QuoKA replayed on a recorded prefill: which queries speak for each chunk, how every key scores,
// which keys are kept, and how much attention they hold. Open loop: every layer sees the dense
// model's q and k, errors do not compound.
#pragma once

#include <stop_token>

#include "analysis/analysis.hpp"
#include "core/attention/quoka_scores.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

/// What competes for the budget.
enum class QuokaScope {
  past_plus_chunk,  // the keys before the chunk; the chunk itself is attended densely and costs no
                    // budget
  whole_cache,      // the chunk's own keys compete too (the paper's listing, taken literally)
};
template <>
struct EnumNames<QuokaScope> {
  static constexpr std::array<std::string_view, 2> value = {"past_plus_chunk", "whole_cache"};
};

/// How the number of kept keys is given.
enum class BudgetKind { tokens, ratio };
template <>
struct EnumNames<BudgetKind> {
  static constexpr std::array<std::string_view, 2> value = {"tokens", "ratio"};
};

/// What happens in decode steps.
enum class QuokaDecode {
  select,  // each step is a chunk of one query
  dense,   // QuoKA is used in prefill only
};
template <>
struct EnumNames<QuokaDecode> {
  static constexpr std::array<std::string_view, 2> value = {"select", "dense"};
};

struct QuokaOptions {
  Index chunk = 128;
  Index n_queries = 16;
  BudgetKind budget_kind = BudgetKind::tokens;
  Index budget = 1024;
  double ratio = 0.25;
  QuokaScope scope = QuokaScope::past_plus_chunk;
  bool mask_scores = false;
  bool force_self = true;
  QuokaPairing pairing = QuokaPairing::rank;
  QuokaMean mean = QuokaMean::raw;
  double eps = 1e-12;
  QuokaDecode decode = QuokaDecode::select;
  Index dense_layers = 0;
  bool store_key_scores = true;

  QuokaScoring scoring() const { return {n_queries, mean, pairing, eps}; }

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"chunk", "B_CP: prompt tokens per prefill chunk"}.at_least(1), self.chunk);
    visit(Field{"n-queries", "N_Q: queries that speak for a chunk, per query head"}.at_least(1),
          self.n_queries);
    visit(Field{"budget-kind",
                "keys kept per KV head and chunk: tokens (--budget) or ratio "
                "(--ratio of the candidates)"},
          self.budget_kind);
    visit(Field{"budget", "B_SA: keys kept per KV head and chunk"}.at_least(1), self.budget);
    visit(Field{"ratio", "with --budget-kind ratio: share of the candidates kept"}.in(0.0, 1.0),
          self.ratio);
    visit(Field{"scope",
                "candidates: past_plus_chunk (past keys; the chunk is dense on top) or "
                "whole_cache (the chunk's keys compete too)"},
          self.scope);
    visit(Field{"mask-scores", "with whole_cache: no query scores keys after itself"},
          self.mask_scores);
    visit(Field{"force-self", "with whole_cache: every query keeps its own position"},
          self.force_self);
    visit(Field{"pairing",
                "tokens averaged over a group's heads: rank, position_sorted or "
                "shared_tokens"},
          self.pairing);
    visit(Field{"mean", "queries are compared with the mean of the raw or of the unit queries"},
          self.mean);
    visit(Field{"eps", "vectors are divided by the larger of their norm and this"}.at_least(1e-30),
          self.eps);
    visit(Field{"decode", "decoded positions: select (chunks of one query) or dense"}, self.decode);
    visit(Field{"dense-layers", "first layers that stay dense"}.at_least(0), self.dense_layers);
    visit(Field{"store-key-scores", "keep S-hat of every key in the result"},
          self.store_key_scores);
  }
};

/// Arrays (T positions, chunks in the order of `chunk_begin`; layers that stay dense,
/// sliding-window ones among them, hold NaN, -1 or nothing selected, and mass 1):
///   s_q, s_q_prompt [layer, q_head, pos]       -cos(q, mean query of its chunk / of the prompt)
///   selected_queries [layer, q_head, chunk, slot]   positions, in slot order; -1 where a chunk has
///   fewer queries key_scores/values [layer, kv_head, entry], key_scores/offsets [n_chunks + 1]
///   S-hat of chunk c's candidates 0, 1, ... selected/positions [layer, kv_head, entry],
///   selected/offsets [n_chunks + 1]    ascending; -1 fills up a chunk mass [layer, q_head, pos]
///   attention on the kept keys log_max_weight [layer, q_head, pos]        log of the largest
///   probability, key 0 left out, not renormalised breadth [layer, q_head, pos] exp(entropy) of the
///   row oracle_recall, loaded, sink_selected [layer, kv_head, chunk]; available [chunk]
///   correlation/{pearson, pearson_log, spearman, partial_log, chunk_pearson_log} [layer, q_head]
///   S_q (whole-prompt
///     mean) against the largest weight and its log, without query 0; partial: given the position;
///     chunk: the last whole chunk alone, with its own mean. (Spearman is the same for the weight
///     and its log.)
/// Throws ConfigError for options out of range or a trace without all heads, q and k; Interrupted
/// on a stop.
nlohmann::ordered_json analyze_quoka(const TraceSource& trace, const QuokaOptions& options,
                                     ResultSink& sink, ThreadPool& pool, const ProgressFn& progress,
                                     std::stop_token stop, const ResultProvenance& provenance = {});

}  // namespace kvscope
