// The k best of each row of scores as an ascending list, by the rules of core/attention/topk.hpp.
#pragma once

#include "core/attention/list_plan.hpp"
#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

struct TopLists {
  const float* scores = nullptr;  // [n_batch, n_owners, stride]; finite, at 16 bytes
  std::int64_t stride = 0;        // a multiple of four
  int n_batch = 1;
  int n_owners = 1;
  /// [n_batch, n_owners, kBuckets] of scores in [-1, 1] (row_scores.cuh), or null: counted here.
  const std::int32_t* histogram = nullptr;
  const std::int32_t* n_past = nullptr;  // [n_batch]
  /// How many entries compete and how many stay, from the positions that lie on the device: n_past,
  /// and budget of them; of_pages: the pages of the context with the call's own key, by their rule.
  bool of_pages = false;
  ListPlan::Pages rule = ListPlan::Pages::kernel;
  int budget = 0;  // in keys
  int page_size = 1;
  std::int32_t* items = nullptr;   // [n_batch, n_owners, item_stride]
  std::int32_t* counts = nullptr;  // [n_batch, n_owners]
  int item_stride = 0;             // at least the longest list
};

/// The longest list that any rule makes of pages of a step, before the context covers the budget.
int most_pages_of(std::int64_t capacity, int page_size, int budget);
/// How many pages before a call the budget buys, where there are as many: no rule asks how long the
/// context is then.
int most_pages_before(std::int64_t capacity, int page_size, int budget, ListPlan::Pages pages);

/// Equal scores: the earlier entry stays. Rules kernel and frontier keep the last page by rule.
void make_top_lists(const TopLists& call, StreamHandle stream);

}  // namespace kvscope::gpu
