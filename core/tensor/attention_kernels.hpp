// Vector kernels of softmax attention on lane blocks (see core/tensor/lane_kernels.hpp).
//
// The order of operations of a query is fixed by absolute key positions alone: scores are one chain
// of multiply-adds over channels; a span of kKeySpan keys is summed by an online softmax over
// blocks of kKeyBlock keys; spans are joined in ascending order, a sink before the first. So
// neither other queries, nor chunks, nor the division of keys among threads change a bit.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor/bf16_kernels.hpp"
#include "core/tensor/lane_kernels.hpp"

namespace kvscope {

constexpr Index kKeyBlock = 128;  // keys per step of the online softmax, at absolute multiples
/// Keys per part that may be summed on its own, at absolute multiples.
constexpr Index kKeySpan = 1024;

/// One block of queries against all keys they see; see core/attention/dense_attention.hpp
/// for the maths.
struct LaneAttention {
  const float* q = nullptr;  // [d_head, lanes] already times the score scale
  /// [lanes] position of each lane's query; unused lanes repeat a used one.
  const std::int32_t* pos = nullptr;
  Index lanes = 0;
  const float* k = nullptr;  // [n, d_head] keys of this KV head from position 0
  const float* v = nullptr;  // [n, d_head]
  /// The same in bf16, in place of k and v: queries and weights are then rounded to bf16 too where
  /// the processor multiplies such; sums are f32.
  const std::uint16_t* k16 = nullptr;
  const std::uint16_t* v16 = nullptr;
  Index d_head = 0;
  Index key_begin = 0;  // first key to look at, a multiple of kKeyBlock
  Index key_end = 0;    // one past the last key that any lane sees
  Index window = 0;     // keys seen per query, itself included; 0 = all
  const float* sink_logits =
      nullptr;               // [lanes] or null: a logit without a key that joins the softmax
  float cap = 0.0f;          // scores become cap * tanh(score / cap); 0 = they stay
  bool has_addends = false;  // with a cap: a key's last channel is added behind it, k only
  float* out = nullptr;      // [d_head, lanes]
  float* lse = nullptr;      // [lanes]
  float* part = nullptr;     // in place of out and lse: see lane_attention_join
  float* scratch = nullptr;  // [3, lanes]
};

/// Softmax attention with an online softmax over blocks of kKeyBlock keys, for blocks of queries
/// with equal k, v, d_head and lanes, a block of keys at a time for all of them while it lies in
/// cache. Same bits as one after another. Of each task's own scratch only [3, lanes] is used;
/// scratch: lane_attention_scratch(d_head) floats.
/// matmul: for keys in bf16, how they are multiplied; `out` must hold [d_head, lanes] also where a
/// task has a part.
void lane_attention(std::span<const LaneAttention> tasks, float* scratch,
                    Matmul matmul = Matmul::f32);
Index lane_attention_scratch(Index d_head);

/// Joins the parts of spans of keys in ascending order, each [d_head + 2, lanes] (maximum, sum,
/// output before division) and each `stride` floats after the one before. sink_logits [lanes] or
/// null. out [d_head, lanes], lse [lanes].
void lane_attention_join(const float* parts, Index n_parts, Index stride, Index d_head, Index lanes,
                         const float* sink_logits, float* out, float* lse);

}  // namespace kvscope
