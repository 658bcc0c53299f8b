// A decode step of Quest in one kernel.
#pragma once

#include "core/cuda/attend.hpp"
#include "core/cuda/row_scores.cuh"
#include "core/cuda/top_lists.cuh"

namespace kvscope::gpu {

/// What choose() and attend() get, at once. One query per sequence; `bounds` and `lists` are those
/// of the separate kernels.
struct QuestStep {
  RowScores bounds;
  TopLists lists;
  DeviceRows rows;
  void* out = nullptr;
  float* lse = nullptr;
  /// Blocks that share a KV head of a sequence: 1 to 16; 0: by the shapes.
  int n_blocks = 0;
  int n_stages = 0;  // of a block's ring, 4 to 27; 0: what two blocks of a multiprocessor hold
};

/// True if the kernel takes these shapes: bf16, at most 8 query heads per KV head, and a KV head's
/// bounds and lists in shared memory (one list at pages of 16: contexts up to about 256k).
bool takes_quest_step(const CallShape& shape, const RowScores& bounds, const TopLists& lists);

/// Box of the page of n_past, bounds of all pages, list, and attention to it. Rows are there
/// (attend.hpp); step.bounds.rows_are_there holds for boxes, whose newest one is made from its
/// keys.
void quest_step(const CallShape& shape, const QuestStep& step, StreamHandle stream);

}  // namespace kvscope::gpu
