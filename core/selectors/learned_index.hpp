// The index that a recording teaches, of all layers: fitted, and as the file of kvscope fit
// indexer.
#pragma once

#include <map>
#include <span>

#include "core/base/parallel.hpp"
#include "core/selectors/learned_heads.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

struct LearnedIndex {
  Index n_positions = 0;               // tokens of the text that taught it; 0 = not known
  bool is_shared = false;              // one index key per token for all KV heads of a layer
  Index rank = 0;                      // channels of an index vector; 0 if nothing was learned
  LearnedHeads<double> queries, keys;  // [rank, d_head] each
  std::map<Index, double> explained;   // by layer: share of the scores' variance, see IndexMaps

  Learned to_file() const;
};

/// Maps of the given rank for each of `layers`; the same for any number of threads.
LearnedIndex fit_index(const TraceSource& text, std::span<const Index> layers, Index rank,
                       bool is_shared, ThreadPool& pool);

/// Throws what ArtifactFile and check_shape throw.
LearnedIndex load_index(const ArtifactFile& file, const AttentionShape& shape);

}  // namespace kvscope
