// Exact causal softmax attention, the reference that every selector is compared with.
#pragma once

#include "core/attention/question.hpp"
#include "core/base/parallel.hpp"

namespace kvscope {

/// Query rows of one KV group that run side by side in lane blocks, and where their results go.
/// q_lanes and out_lanes are [n_blocks][n_q * d_head, lanes]: token t of the call is lane t % lanes
/// of block t / lanes.
struct LaneAttentionCall : AttentionQuestion {
  Index lanes = 0;
  Index n_q = 0;         // q itself is not read; k and v: rows contiguous per head
  HalfRows halves = {};  // in place of k and v where the cache holds bf16
  const float* q_lanes = nullptr;
  float* out_lanes = nullptr;
  TensorView<float> lse = {};  // [n_q, n_tok]
  Index n_kv() const { return halves ? halves.k.dim(0) : k.dim(0); }
  Index d_head() const { return halves ? halves.k.dim(2) : k.dim(2); }
};

/// softmax(scale q k^T, softly capped, + causal and window mask) v for all heads; a head's sink
/// joins the softmax
/// with no value. Query head h reads KV head h / group. Parallel over (head, block of queries);
/// same bits for any thread count and any division of queries into calls.
void attend_lanes(const LaneAttentionCall& call, ThreadPool& pool);

/// The same on row-major tensors, for measurements and tests.
void attend_dense(const AttentionQuestion& question, const AttentionRows& answer, ThreadPool& pool,
                  const HalfRows& halves = {});

}  // namespace kvscope
