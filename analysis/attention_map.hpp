// The attention map of one head, pooled to a size that can be looked at: recomputed row by row from
// q and k, never T x T in memory.
#pragma once

#include <stop_token>

#include "analysis/analysis.hpp"
#include "analysis/pooled_rows.hpp"
#include "core/base/fields.hpp"
#include "core/base/progress.hpp"

namespace kvscope {

struct AttentionMapOptions {
  Index layer = 0;
  Index head = 0;
  Index max_cells = 512;
  MapPooling pooling = MapPooling::max;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"layer", "layer, by its number in the model"}.at_least(0), self.layer);
    visit(Field{"head", "query head, by its number in the model"}.at_least(0), self.head);
    visit(Field{"max-cells", "most cells per side; longer contexts are pooled in equal blocks"}.in(
              2.0, 4096.0),
          self.max_cells);
    visit(Field{"pooling", "a cell shows the max or the mean of its weights"}, self.pooling);
  }
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
                                             ResultWriter& output, ThreadPool& pool,
                                             const ProgressFn& progress, std::stop_token stop,
                                             const ResultProvenance& provenance = {});

}  // namespace kvscope
