// Does S_q find the queries that put a large weight on one key? QuoKA's query score against the log
// of the largest weight of the exact attention row, per layer and query head (its figure 2 (c)).
#pragma once

#include <algorithm>

#include "analysis/base/analysis.hpp"
#include "analysis/base/trace_selection.hpp"
#include "analysis/kinds/query_scores.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

/// What the partial correlations hold fixed. A linear effect of it is taken out; the partial
/// Spearman works on ranks, so both choices give it the same value.
enum class QueryControl {
  position,      // the position of the query
  log_position,  // log(1 + position): a spread-out row of n keys has weights near 1/n
};

struct QuerySelectionOptions {
  TraceSelection selection;
  Index queries = option(
      queries, "queries", 4096,
      "queries measured per head, evenly spaced over the trace; all if it has no more (the mean "
      "query always takes all)",
      at_least(1));
  Index chunk =
      option(chunk, "chunk", 128,
             "B_CP: prompt tokens per chunk, for S_q against the chunk's mean query", at_least(2));
  QuokaMean mean = option(mean, "mean", QuokaMean::raw,
                          "queries are compared with the mean of the raw or of the unit queries");
  Index skip = option(
      skip, "skip", 1,
      "first positions that count neither as the largest weight's key (no renormalisation) nor as "
      "a query: 1 leaves the attention sink out, 0 nothing",
      at_least(0));
  Index skip_recent = option(
      skip_recent, "skip-recent", 0,
      "last visible keys, the query's own first, that do not count as the largest weight's key: "
      "reveals heads that attend only to their neighbours",
      at_least(0));
  QueryControl control =
      option(control, "control", QueryControl::position,
             "what the partial correlations hold fixed: position or log_position");
  double eps = option(eps, "eps", 1e-12, "vectors are divided by the larger of their norm and this",
                      at_least(1e-30));

  QueryScoring scoring() const { return {chunk, mean, eps}; }
  /// The visible keys that may be the one of largest weight; perhaps none.
  TokenRange counted_keys(TokenRange visible) const {
    return {std::max(skip, visible.begin), visible.end - std::min(skip_recent, visible.size())};
  }
  bool operator==(const QuerySelectionOptions&) const = default;
};

/// Arrays, [layer, q_head, query] with the queries' positions in `pos`
///   prompt/s_q       -cos(q, mean query of the whole prompt)
///   chunk/s_q        -cos(q, mean query of its prefill chunk); NaN for a query alone in its chunk
///                    (every decoded one)
///   log_max_weight   largest score of the keys left - lse: exact where the weight itself is too
///                    small for a float; NaN if no key is left
///   max_weight       its exponential
///   max_key          position of that key, the first among equals; -1 if none is left
///   lse              log-sum-exp of the row, a head's attention sink (a logit without a key)
///                    included: it takes its part of every weight
///   breadth          exp(entropy) of the weights among the keys: a flat row over n keys has n
///
/// [layer, q_head], over the measured queries from `skip` on; NaN where not defined
///   correlation/prompt/*, correlation/chunk/*   the five coefficients of query_scores.hpp
///   correlation/position/log_weight, correlation/position/prompt_s_q    with what is held fixed:
///                    how large the confounding is
///
/// [layer, q_head, chunk] with the chunks' first positions in `chunk_begin`
///   correlation/within_chunk    Pearson of chunk/s_q and log_max_weight in one chunk, where the
///                    visible length hardly varies; NaN with fewer than 8 measured queries
///
/// Throws ConfigError for options out of range, layers or heads that were not recorded, or a trace
/// without all q and k; Interrupted on a stop. Memory: one KV head's keys and 16 score rows per
/// thread; never a map.
nlohmann::ordered_json analyze_query_selection(const TraceSource& trace,
                                               const QuerySelectionOptions& options,
                                               const AnalysisRun& run);

}  // namespace kvscope
