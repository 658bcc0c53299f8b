// What the formulas of Selector::cost are made of: half-precision elements, as the papers count,
// the keys that are there to be scored, and the cost of each operation that several methods do.
#pragma once

#include "core/selectors/selector.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// Bytes of one stored key or value element (b in the formulas): fp16.
inline constexpr double kBytesPerElement = 2.0;

/// Bytes of one attention probability that is kept for voting: f32.
inline constexpr double kBytesPerProb = 4.0;

/// Keys of `range` that the call may score, summed over the KV heads: evicted keys, and keys that
/// an earlier stage of a stack hides, are not read.
double alive_keys(const SelectCall& call, TokenRange range);

/// Pages (page p holds the positions from p page_size on) of `pages` with at least one such key
/// before the call's end, summed over the KV heads.
double alive_pages(const SelectCall& call, TokenRange pages, Index page_size);

/// A formula is a sum of operations.
inline SelectCost operator+(const SelectCost& a, const SelectCost& b) {
  return {a.score_flops + b.score_flops, a.score_bytes + b.score_bytes,
          a.metadata_bytes + b.metadata_bytes};
}
inline SelectCost flops_cost(double n) {
  return {.score_flops = n};
}
/// Elements besides the cache.
inline SelectCost held_cost(double n_elements) {
  return {.metadata_bytes = n_elements * kBytesPerElement};
}
inline SelectCost read_cost(double n_elements) {
  return {.score_bytes = n_elements * kBytesPerElement};
}

/// Query heads of a KV head times the call's rows.
double queries_per_kv_head(const SelectCall& call);

/// Products of n_vectors per KV head with n_rows stored rows (keys, pages, means; of all KV heads
/// together) of `width` elements, which are read once.
SelectCost products_cost(double n_vectors, double n_rows, double width);

/// Products of each query and each key of the call with n vectors.
SelectCost own_products_cost(const SelectCall& call, double n);

/// What follows from each key's own channels (its norm, its cosine with one vector): so many FLOPs
/// and elements read per channel of n_keys keys.
SelectCost channels_cost(const SelectCall& call, double n_keys, double flops, double elements);

/// Softmax weights that were written out to be summed.
SelectCost weights_cost(double n_weights, double n_held);

/// What a method holds of every key in so many bytes (codes, labels): read of the past.
SelectCost codes_cost(const SelectCall& call, double bytes_per_key);

/// Pages of two rows each (corners, moments), of which those of `scored` get a score per query: of
/// every query head, or, linear in them, of the sum over n_summed rows of each (0: no sums). bytes:
/// of an element.
SelectCost page_scores_cost(const SelectCall& call, TokenRange scored, Index page_size,
                            Index n_summed, double bytes);

/// Exact scores of n_rows rows of every query head against the keys of `range`, which are read
/// once: 2 n_q n_rows T d FLOPs and n_kv T d elements.
SelectCost exact_scoring_cost(const SelectCall& call, TokenRange range, Index n_rows);

/// Pairs of a block of the call's queries and a block of keys that have something in them, summed
/// over the query heads. Blocks of queries begin with the call, blocks of keys at position 0.
double block_pairs(const SelectCall& call, Index query_block, Index key_block);

/// Means of blocks of queries and of keys, so many FLOPs per element, and their products.
SelectCost block_scores_cost(const SelectCall& call, Index query_block, Index key_block,
                             double flops = 1.0);

}  // namespace kvscope
