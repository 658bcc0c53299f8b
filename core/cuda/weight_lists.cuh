// Lists without a budget from rows of scores: the keys of at least some softmax weight, or the
// fewest that hold a share of all weights.
#pragma once

#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

struct WeightLists {
  const float* scores = nullptr;  // [n_rows, n_owners, stride]; -infinity: not seen
  std::int64_t stride = 0;
  int n_rows = 1;
  int n_owners = 1;
  int n_keys = 0;             // that the last row may see; the others see fewer
  double least_weight = 0.0;  // one of both is above 0
  double mass = 0.0;
  std::int32_t* items = nullptr;   // [n_rows, n_owners, item_stride]
  std::int32_t* counts = nullptr;  // [n_rows, n_owners]
  int item_stride = 0;             // at least n_keys
};

/// Ascending lists. Weights are compared as f32 numbers, of equal ones the earlier key stays; their
/// sums are whole multiples of 2^-40 of the largest weight, so that no order of adding changes a
/// list. Lists of a share have at least one key, those of a weight may be empty.
void make_weight_lists(const WeightLists& call, StreamHandle stream);

}  // namespace kvscope::gpu
