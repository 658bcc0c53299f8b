// Scores of some queries of a call with keys, and the softmax weights that they make: what methods
// choose by that rank keys by exact attention.
#pragma once

#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"
#include "core/cuda/key_list.cuh"

namespace kvscope::gpu {

/// Rows [first_row, first_row + n_rows) of a call, in all heads, and the keys that they meet: those
/// of a list per KV head (items null: all before the call), then the call's own up to each row.
/// Keys are counted along the list. One sequence.
struct QueryScores {
  const void* q = nullptr;  // [n_q, n_tok, d_head]
  const void* k = nullptr;  // [n_kv, capacity, d_head]
  ListSource list;          // of n_kv lists, or none; adds_own
  int first_row = 0;
  int n_rows = 0;
  int most_keys = 0;        // of any list, the call's own included
  float* scores = nullptr;  // [n_rows, n_q, stride]
  std::int64_t stride = 0;  // at least most_keys
};

/// score_scale q.k in f32, one chain of multiply-adds over the channels: equal keys get equal
/// scores. -infinity where a row does not see a key; NaN and infinities become the largest finite
/// numbers (NaN the lowest), so that lists are made of numbers: attention reports them.
void score_queries(const CallShape& shape, const QueryScores& call, StreamHandle stream);

/// Softmax weights of those scores, over the keys that each row sees, summed over a group's heads.
struct QueryWeights {
  QueryScores from;            // after score_queries
  float2* extremes = nullptr;  // [n_rows, n_q] scratch memory: largest score, 1 / sum of exponents
  bool joins_rows = false;     // over the rows too
  bool adds = false;           // joins_rows: to what weights hold
  float* weights = nullptr;    // [n_rows or 1, n_kv, stride of the scores]
};
void weigh_keys(const CallShape& shape, const QueryWeights& call, StreamHandle stream);

}  // namespace kvscope::gpu
