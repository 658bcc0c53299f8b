// The k best of each row of scores as an ascending list, by the rules of core/attention/topk.hpp.
#pragma once

#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

/// How many entries compete and how many stay, from the positions that lie on the device.
enum class CountRule {
  keys,  // n_past compete, budget of them stay
  eval,  // pages of the context with the call's own key: PageRule of core/selectors/page_lists.hpp
  kernel,
  frontier,
  hub,
};

struct TopLists {
  const float* scores = nullptr;  // [n_batch, n_owners, stride]; finite, at 16 bytes
  std::int64_t stride = 0;        // a multiple of four
  int n_batch = 1;
  int n_owners = 1;
  /// [n_batch, n_owners, kBuckets] of scores in [-1, 1] (row_scores.cuh), or null: counted here.
  const std::int32_t* histogram = nullptr;
  const std::int32_t* n_past = nullptr;  // [n_batch]
  CountRule rule = CountRule::keys;
  int budget = 0;  // in keys
  int page_size = 1;
  std::int32_t* items = nullptr;   // [n_batch, n_owners, item_stride]
  std::int32_t* counts = nullptr;  // [n_batch, n_owners]
  int item_stride = 0;             // at least the longest list
  int n_blocks = 1;  // that share a row of scores, at most 8; 1 for some thousands of scores
};

/// Equal scores: the earlier entry stays. Rules kernel and frontier keep the last page by rule.
void make_top_lists(const TopLists& call, StreamHandle stream);

}  // namespace kvscope::gpu
