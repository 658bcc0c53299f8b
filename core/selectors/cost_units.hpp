// What the formulas of Selector::cost count in: half-precision elements, as the papers do, and the
// keys that are there to be scored.
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

/// Exact scores of n_rows rows of every query head against the keys of `range`, which are read
/// once: 2 n_q n_rows T d FLOPs and n_kv T d elements.
SelectCost exact_scoring_cost(const SelectCall& call, TokenRange range, Index n_rows);

/// Pairs of a block of the call's queries and a block of keys that have something in them, summed
/// over the query heads. Blocks of queries begin with the call, blocks of keys at position 0.
double block_pairs(const SelectCall& call, Index query_block, Index key_block);

}  // namespace kvscope
