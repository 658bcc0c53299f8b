// How many keys must be read to choose exactly: a page of keys whose bound lies below the score of
// the worst chosen key cannot hold a chosen one, so that pages read in the order of their bounds
// end there, and the list is that of reading everything.
//
// Bounds are of boxes (smallest and largest value per channel): of unit keys for QuoKA's cosines,
// of keys as they are for scores linear in a query.
#pragma once

#include <stop_token>
#include <string>

#include "analysis/base/analysis.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

struct PruningOptions {
  Index budget = option(budget, "budget", 1024, "keys that are chosen", at_least(1));
  std::string page_sizes =
      option(page_sizes, "page-sizes", "4,8,16,32,64", "keys of a page, one share for each size");
  Index chunk = option(chunk, "chunk", 128,
                       "queries of QuoKA's chunk, the last one of which is "
                       "the query of the other scores",
                       at_least(1));
  Index steps = option(steps, "steps", 8, "contexts looked at, evenly spaced up to the whole text",
                       at_least(1));
  Index n_queries = option(n_queries, "n-queries", 16, "QuoKA's queries of a chunk", at_least(1));
  bool operator==(const PruningOptions&) const = default;
};

/// Arrays [layer, head, step, page_size] of shares of the pages before the chunk:
///   quoka/read, sparq/read   per KV head; oracle/read per query head: bounds at or above the score
///                            of the worst chosen key
///   quoka/hold, ...          pages that hold a chosen key: what no bound could do without
/// and `context` [step], `page_size` [page_size]. NaN where the budget takes every key.
/// The summary has the means over heads by score, context and page size, in each layer and over
/// them; `traffic` adds the boxes, two numbers per channel and page, to what is read of the keys.
/// Throws ConfigError for options out of range, or a trace without all q and k of whole groups;
/// Interrupted on a stop.
nlohmann::ordered_json analyze_pruning(const TraceSource& trace, const PruningOptions& options,
                                       const AnalysisRun& run);

}  // namespace kvscope
