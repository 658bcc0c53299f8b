// A block of the kernel in quest_step.cu: arguments, shared memory, and its part of the work.
#pragma once

#include "core/cuda/attend_kernels.cuh"
#include "core/cuda/best_list.cuh"
#include "core/cuda/bulk_ring.cuh"
#include "core/cuda/score_vectors.cuh"

namespace kvscope::gpu {

constexpr int kStepThreads = 256;
constexpr int kStepWarps = kStepThreads / 32;
constexpr int kTile = 16;  // boxes, or listed keys and values, of a stage
constexpr int kMostHeads = 8;
constexpr int kMostBlocks = 16;  // of a cluster

/// Of a ring: a tile of boxes, or one of keys and values.
template <int kWidth>
constexpr int kStageBytes = kTile * 2 * kWidth * 2;

struct StepCall {
  RowScores bounds;
  TopLists lists;
  AttendCall<Bf16> attention;
  int n_stages;
  unsigned stage_share;  // of BulkRing
};

/// Lists of a KV head.
__host__ __device__ inline int n_lists_of(const RowScores& bounds) {
  return bounds.reduce == Reduce::each ? bounds.n_vectors : 1;
}

/// A block's shared memory behind the ring and before bounds and lists.
template <int kWidth>
struct StepMemory {
  union {
    uint2 right[kTerms][2 * kWidth / 16][32];              // while boxes are scored
    CutMemory<kStepThreads, /*kMostCandidates=*/256> cut;  // then
  };
  alignas(16) Bf16 fresh[2][2 * kWidth];  // boxes made here, of even and odd pages
  RingState ring;
  float warp_max[kStepWarps][kMostHeads];
  float warp_total[kStepWarps][kMostHeads];
  // What each block found, told by it: largest exponent and sum of a head, and its products'
  // quads that this block writes. Not in the ring: others may be ahead.
  float2 part_scale[kMostBlocks][kMostHeads];
  float4 part_sum[kMostHeads * kWidth / 4 + kMostBlocks];
};

/// What a thread knows about its block's part.
template <int kWidth>
struct Step {
  const StepCall& call;
  StepMemory<kWidth>& memory;
  BulkRing ring;
  float* bounds;        // of all pages, for each list
  std::int32_t* items;  // of each list
  int pair;             // sequence and KV head
  int n_blocks, rank;
  int warp, lane;
  int r, t;  // the lane's row and column in the tensor cores' tiles
  int n_past = 0, n_pages = 0, first_fresh = 0;
  int n_box_tiles = 0;  // of this block

  __device__ __forceinline__ void take_position(int past) {
    const int log2_page = call.attention.list.log2_page;
    n_past = past;
    n_pages = (past >> log2_page) + 1;
    first_fresh = max(past - 1, 0) >> log2_page;
    n_box_tiles = share_of((n_pages + kTile - 1) / kTile);
  }
  /// 1, or one for each query head.
  __device__ __forceinline__ int n_lists() const { return n_lists_of(call.bounds); }
  __device__ __forceinline__ float* bounds_of(int l) const {
    return bounds + l * static_cast<int>(call.bounds.stride);
  }
  __device__ __forceinline__ std::int32_t* items_of(int l) const {
    return items + l * call.lists.item_stride;
  }
  __device__ __forceinline__ int n_context() const { return n_past + 1; }
  /// Of n tiles that blocks take in turn: how many are this block's, and which one its i-th is.
  __device__ __forceinline__ int share_of(int n) const {
    return rank < n ? (n - 1 - rank) / n_blocks + 1 : 0;
  }
  __device__ __forceinline__ int tile_of(int i) const { return rank + i * n_blocks; }
  __device__ __forceinline__ const Bf16* rows_of(const Bf16* rows) const {
    return rows + static_cast<std::int64_t>(pair) * call.attention.capacity * kWidth;
  }
  __device__ __forceinline__ Bf16* boxes() const {
    return static_cast<Bf16*>(const_cast<void*>(call.bounds.rows)) +
           static_cast<std::int64_t>(pair) * call.bounds.capacity * 2 * kWidth;
  }

  /// By one thread: the boxes of the block's i-th tile but fresh ones set out.
  __device__ __forceinline__ void fetch_boxes(int i) const {
    const int first = tile_of(i) * kTile;
    const int bytes = min(max(first_fresh - first, 0), kTile) * 4 * kWidth;
    ring.announce(i, bytes);
    if (bytes > 0) ring.copy(i, 0, boxes() + static_cast<std::int64_t>(first) * 2 * kWidth, bytes);
  }
};

/// A lane's 16-byte chunks t, t + 4, ... of a row in shared memory. Rows begin in the same bank:
/// odd ones are read in another order, so that fewer lanes meet.
template <int kChunks>
__device__ __forceinline__ void load_chunks(uint4 (&chunk)[kChunks], const unsigned char* row,
                                            int t, bool is_odd) {
#pragma unroll
  for (int j = 0; j < kChunks; j += 2) {
    const int first = is_odd ? j + 1 : j;
    const uint4 a = *reinterpret_cast<const uint4*>(row + (first * 4 + t) * 16);
    const uint4 b = *reinterpret_cast<const uint4*>(row + ((first ^ 1) * 4 + t) * 16);
    chunk[j] = is_odd ? b : a;
    chunk[j + 1] = is_odd ? a : b;
  }
}

}  // namespace kvscope::gpu
