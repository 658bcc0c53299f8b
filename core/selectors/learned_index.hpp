// Index vectors learned from a recording: short vectors of queries and keys whose products stand
// for the scores of attention, as a lightning indexer's do, made by two linear maps per head; of
// all layers, and as the file of kvscope fit indexer.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "core/base/parallel.hpp"
#include "core/selectors/learned_heads.hpp"
#include "core/trace/source.hpp"

namespace kvscope {

/// Maps of one layer, or of one KV head of it. The index vector of a query q of KV head h's group
/// is of_queries[h] q; that of a token is of_keys[h] k of its key, summed over the heads. The first
/// r rows of all maps are the maps of rank r.
struct IndexMaps {
  std::vector<Tensor<double>> of_queries;  // [n heads] each [rank, d_head]
  std::vector<Tensor<double>> of_keys;     // [n heads] each [rank, d_head]
  /// Share of the scores' variance over keys, summed over the queries, that the maps keep.
  double explained = 0.0;
};

/// The maps of a rank in [1, n heads * d_head] for KV heads [kv_heads] of a layer, which share one
/// index key per token. Of all maps of this rank they leave the smallest
///   sum over queries q and keys k of (q.k - mean over keys - the same of the index vectors)^2
/// over all pairs of the text (a constant per query moves no rank, so keys count from their mean):
/// with Cq the second moment of the queries (a block per KV head) and Ck the covariance of the keys
/// (of all heads together), U the leading left singular vectors of Cq^(1/2) Ck^(1/2), they are U^T
/// Cq^(-1/2) and U^T Cq^(1/2) (Eckart, Young, Mirsky in these weights). At full rank their product
/// is the identity: scores are those of attention. Cq gets 1e-4 of its mean eigenvalue on its
/// diagonal, so that directions without queries do not divide by zero. f64; one thread. Good at the
/// positions of the text alone, where keys have been rotated by them.
IndexMaps fit_index_maps(const TraceSource& text, Index layer, TokenRange kv_heads, Index rank);

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
