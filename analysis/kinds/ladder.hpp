// The serving ladder: what each restriction of an engine on a method's choice costs, level by
// level, from a list of tokens per query head, by exact scores, for every query, to pages that all
// heads, several steps or a whole chunk share.
#pragma once

#include <optional>
#include <vector>

#include "analysis/base/analysis.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope {

struct LadderOptions {
  MethodSpec selector;
  std::optional<Budget> budget;  // empty for methods that take none
  std::vector<Index> layers;     // empty = all that are recorded

  Index rows = option(
      rows, "rows", 16,
      "most queries that are measured, evenly spaced over the last three quarters, at least a "
      "chunk apart",
      at_least(1));
  Index chunk = option(chunk, "chunk", 128,
                       "queries that share a list on the last level; the measured one is its last",
                       at_least(2));
  Index every =
      option(every, "every", 4, "steps that one choice serves on the level of steps", at_least(2));
  Index dense_layers = option(dense_layers, "dense-layers", 0,
                              "leading layers left dense, and out of every mean", at_least(0));
};

/// The layers that are measured: asked for, recorded, neither dense by option nor by a window.
/// Throws ConfigError if none is.
std::vector<Index> ladder_layers(const TraceInfo& info, const LadderOptions& options);

/// Every level is measured at the same queries: a call of one query each (decode), on the last
/// level the chunk that ends with it. Level 0 is the method as it is; "alone" has one restriction,
/// "together" those of all levels before it too.
///
/// Arrays, NaN where the method cannot take the level (the summary's "rows" say why)
///   alone/M, together/M [layer, level]
///     mass          share of the attention on the kept keys, mean over heads and queries
///     output_error  |y - O| / |O|, the same mean
///     kept          keys that a query head attends to
///     bytes         read by all heads for one query: scoring, and K and V of the kept keys
///   ties/share, ties/changed [layer, level]  the census of ties, on the levels of scores:
///     share         lists whose cut lies among equal scores, so that engines differ in them
///     changed       keys of a list that come and go with the order of equal scores, their mean
///   query_pos [row]  positions of the measured queries
///
/// A chunk's own keys are kept beside the budget, of which the measured query sees all: the last
/// level keeps more keys. The summary holds "rows" (one per level, means over the layers), "layers"
/// and "totals" (as the method is, and with all restrictions but the chunk). Throws ConfigError for
/// options out of range, a budget that the method does not take, a trace that is too short or
/// without all of q, k and v; Interrupted on a stop. Same bits for any thread count.
nlohmann::ordered_json analyze_ladder(const TraceSource& trace, const LadderOptions& options,
                                      const AnalysisRun& run);

}  // namespace kvscope
