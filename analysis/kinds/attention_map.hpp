// The attention map of one head, pooled to a size that can be looked at: recomputed row by row from
// q and k, never T x T in memory.
#pragma once

#include "analysis/base/analysis.hpp"
#include "analysis/base/pooled_rows.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

struct AttentionMapOptions {
  Index layer = option(layer, "layers", 0, "the layer, by its number in the model", at_least(0));
  Index head = option(head, "heads", 0, "the query head, by its number in the model", at_least(0));
  Index max_cells =
      option(max_cells, "max-cells", 512,
             "most cells per side; longer contexts are pooled in equal blocks", in(2.0, 4096.0));
  MapPooling pooling = option(pooling, "pooling", MapPooling::max,
                              "a cell shows the max or the mean of its weights");
};

/// Arrays
///   map [query_block, key_block]   softmax weight, pooled; NaN where no query sees a key
///   query_block, key_block         first positions of the blocks
///
/// The summary says layer, head, block (tokens per side of a cell) and pooling. Throws ConfigError
/// for options out of range, a layer or head that was not recorded, or a trace without all q and k;
/// Interrupted on a stop.
nlohmann::ordered_json analyze_attention_map(const TraceSource& trace,
                                             const AttentionMapOptions& options,
                                             const AnalysisRun& run);

}  // namespace kvscope
