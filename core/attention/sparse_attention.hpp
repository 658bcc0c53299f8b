// Sparse attention: softmax over a selection's sorted key lists instead of over all keys.
//
// The keys and values of a list are gathered once and run through the same vector kernel as dense
// attention (core/tensor/attention_kernels.hpp), in the same blocks: a list that holds every
// visible key gives the dense result bit for bit.
#pragma once

#include <memory>

#include "core/attention/question.hpp"
#include "core/attention/selection.hpp"
#include "core/base/parallel.hpp"

namespace kvscope {

/// Memory of attend_lists that outlives its calls: without it every call asks the system for fresh
/// pages. For one call at a time.
class ListMemory {
 public:
  ListMemory();
  ~ListMemory();
  ListMemory(ListMemory&&) noexcept;
  ListMemory& operator=(ListMemory&&) noexcept;
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// out = softmax(scale q k^T) v over each query's list, cut to the positions up to its own and
/// renormalised over what is left (a head's attention sink joins the softmax); lse over the same
/// keys. Log-weights join the scores of their keys; every query of the call also attends to the
/// summaries of its KV head, as keys with score + log_count, or mixes the one summary in where the
/// list's share is stated. A query that is left without keys and summaries gets out = 0 and lse =
/// -infinity. The selection has lists (is_dense false: that is attend_lanes' work); the question's
/// window does not cut them.
///
/// Parallel over (list, KV head, block of queries); same bits for any thread count and any division
/// of queries into calls that leaves their lists as they are. Memory per worker: the keys and
/// values of the longest list. halves: the cache's own rows, where it holds bf16; the question's
/// are then not read. memory: kept between calls; null = of this call.
void attend_lists(const AttentionQuestion& question, const Selection& selection,
                  const AttentionLanes& answer, ThreadPool& pool, const HalfRows& halves = {},
                  ListMemory* memory = nullptr);

}  // namespace kvscope
