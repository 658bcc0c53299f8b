// Index vectors learned from a recording: short vectors of queries and keys whose products stand
// for the scores of attention, as a lightning indexer's do, made by two linear maps per head.
#pragma once

#include <vector>

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

}  // namespace kvscope
