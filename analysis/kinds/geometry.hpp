// The geometry of recorded queries and keys: principal axes, how tightly they cluster about their
// means, how long they are. Everything is after RoPE (and QK norm), as it enters the dot product,
// but for what says otherwise.
#pragma once

#include "analysis/base/analysis.hpp"
#include "analysis/base/trace_selection.hpp"
#include "analysis/kinds/query_scores.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

/// Which rows the principal axes are fitted to. Always all recorded positions, each row with the
/// same weight.
enum class GeometryBasis {
  group,  // the keys of a KV head and the queries of its (selected) query heads, together
  head,   // the keys of a KV head and one query head: the paper's figure 2 (b)
  keys,   // the keys alone; queries are shown in the keys' axes
};

struct GeometryOptions {
  TraceSelection selection;
  GeometryBasis basis = option(
      basis, "basis", GeometryBasis::group,
      "axes fitted to: group (a KV head's keys and all its queries), head (its keys and one query "
      "head) or keys (its keys alone)");
  Index max_points = option(
      max_points, "max-points", 4096,
      "positions shown per head, evenly spaced over the trace; all if it has no more (the fit "
      "always takes all)",
      at_least(1));
  QuerySpan span = option(span, "span", QuerySpan::prompt,
                          "S_q compares a query with the mean of the prompt or of its own chunk");
  Index chunk =
      option(chunk, "chunk", 128, "B_CP: with --span chunk, prompt tokens per chunk", at_least(1));
  QuokaMean mean =
      option(mean, "mean", QuokaMean::raw, "the means are those of the raw or of the unit vectors");
  double eps = option(eps, "eps", 1e-12, "vectors are divided by the larger of their norm and this",
                      at_least(1e-30));

  QueryScoring scoring() const { return {chunk, mean, eps}; }
};

/// Arrays. A basis belongs to a KV head, or with `head` to a query head: `basis_head` says which.
/// The sign of each axis makes its element of largest magnitude positive. Means are those of the
/// prompt (M_Q and M_K); decoded positions are compared with them too.
///
/// [layer, basis, component], component 1 to d_head, and from the fit
///   variance, explained      along each axis; its share of the total, NaN if all rows are equal
///   center                   [layer, basis, channel]: the mean of the fitted rows
///   directions               [layer, basis, shown, channel]: the first 3 axes
///
/// [layer, q_head, pos] of the shown positions; queries/projection has [.., shown] too
///   queries/projection       coordinates along the first 3 axes, from the centre
///   queries/s_q              -cos(q, mean query of the prompt or the chunk, as `span` says)
///   queries/cos_mean         cos(q, M_Q)
///   queries/norm
///
/// [layer, kv_head, pos]
///   keys/cos_mean, keys/norm
///   keys/projection          [layer, basis, pos, shown]
///
/// Over all positions
///   clustering/queries       [layer, q_head] mean of cos(q, M_Q); 1 = all in one direction
///   clustering/keys          [layer, kv_head] mean of cos(k, M_K)
///   clustering/means         [layer, q_head] cos(M_Q, M_K)
///   clustering/keys_before_rope   [layer, kv_head] as clustering/keys, of the keys before RoPE, if
///                            the trace has them (record --capture k-pre-rope); and with them
///   clustering/rope_share    [layer, kv_head] (before - after) / (1 - after): the share of the
///                            keys' spread about their mean that the rotation makes
///   norms/q_mean, norms/q_p05, norms/q_p95 and the same for k and v    [layer], heads pooled
///
/// Throws ConfigError for options out of range, layers or heads that were not recorded, or a trace
/// without all q, k and v; Interrupted on a stop. Memory: the rows of one KV group per thread.
nlohmann::ordered_json analyze_geometry(const TraceSource& trace, const GeometryOptions& options,
                                        const AnalysisRun& run);

}  // namespace kvscope
