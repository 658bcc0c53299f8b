// What attend_rows.cu is made of: shared memory, which keys a block sees, and the fold of segments.
//
// Keys are taken in segments of 256 that begin at fixed numbers, and what each segment gives is
// folded into a row's sums in the order of the segments. The blocks of a cluster take one segment
// each, and fold when all have theirs. So a row's bits depend neither on how many blocks share its
// keys nor on which rows its call has: a segment of which a row sees nothing changes none.
#pragma once

#include <cooperative_groups.h>

#include "core/cuda/attend_kernels.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu::by_rows {

constexpr int kWarps = 8;
constexpr int kRowsPerWarp = 4;
constexpr int kRows = kWarps * kRowsPerWarp;
constexpr int kThreads = kWarps * 32;
constexpr int kKeys = 32;  // of a tile: one per lane
constexpr int kSegment = 256;
constexpr int kMostSplits = 8;

/// That fit into a multiprocessor at a time, by their registers.
template <int kWidth>
constexpr int kBlocksAtATime = kWidth == 64    ? 3
                               : kWidth == 128 ? 2
                                               : 1;

template <int kWidth>
struct RowMemory {
  static constexpr int kStride = kWidth + 4;  // lanes that read one channel of 32 keys: all banks
  float q[kRows][kWidth];
  float k[kKeys][kStride];  // between segments: the sums of the segment before, per row
  float v[kKeys][kWidth];
  float weight[kRows][kKeys];
  float largest[kRows];  // of the segment before
  float total[kRows];
};
static_assert(kRows == kKeys, "a segment's sums lie where keys were");

// A lane's channels: in fours (or all, if it has fewer), 128 channels apart.
template <int kWidth>
struct LaneChannels {
  static constexpr int kEach = kWidth / 32;
  static constexpr int kTogether = kEach < 4 ? kEach : 4;
  static __device__ __forceinline__ int at(int lane, int part) {
    return part * 128 + lane * kTogether;
  }
  template <class T>
  static __device__ __forceinline__ void load(const T* row, int lane, float (&to)[kEach]) {
#pragma unroll
    for (int part = 0; part < kEach / kTogether; ++part) {
      float some[kTogether];
      load_row_part(row + at(lane, part), some);
#pragma unroll
      for (int c = 0; c < kTogether; ++c) to[part * kTogether + c] = some[c];
    }
  }
  static __device__ __forceinline__ void store(float* row, int lane, const float (&from)[kEach]) {
#pragma unroll
    for (int part = 0; part < kEach / kTogether; ++part) {
#pragma unroll
      for (int c = 0; c < kTogether; ++c) row[at(lane, part) + c] = from[part * kTogether + c];
    }
  }
};

// The keys that some row of a block sees, as segments.
struct Segments {
  int begin;
  int count;
  int end;  // number of the key behind the last one

  template <class T>
  __device__ __forceinline__ Segments(const AttendCall<T>& call, const KeyList& keys,
                                      int first_token, int last_token) {
    end = call.list.adds_own ? min(keys.n_keys, keys.n_listed + last_token + 1) : keys.n_keys;
    const int seen_from =
        call.rule.window > 0 ? max(0, keys.own_begin + first_token + 1 - call.rule.window) : 0;
    begin = seen_from / kSegment;
    count = max(0, (end + kSegment - 1) / kSegment - begin);
  }
  __device__ __forceinline__ int first_key(int number) const { return (begin + number) * kSegment; }
};

// True if a query sees key `index`, which is its position where there is a window.
template <class T>
__device__ __forceinline__ bool sees(const AttendCall<T>& call, const KeyList& keys, int token,
                                     int index) {
  if (!keys.sees(token, index)) return false;
  return call.rule.window == 0 || index > keys.own_begin + token - call.rule.window;
}

// What a thread folds segments into: some channels of one row.
template <int kWidth>
struct Folded {
  static constexpr int kQuads = kWidth / 32;  // at most, where one block has all
  float largest = -INFINITY;
  float total = 0.0f;
  float4 sum[kQuads] = {};

  // The intrinsics keep the compiler from rounding differently for other numbers of blocks.
  template <int kMost>
  __device__ __forceinline__ void add(cooperative_groups::cluster_group& cluster,
                                      RowMemory<kWidth>& memory, int row, int first_quad,
                                      int quad_step) {
    const int n_splits = static_cast<int>(cluster.num_blocks());
    float of_sums[kMost], of_split[kMost];
#pragma unroll
    for (int s = 0; s < kMost; ++s) {  // loads without branches: all are on their way at once
      const int from = s < n_splits ? s : 0;
      of_split[s] = cluster.map_shared_rank(&memory.largest[0], from)[row];
      of_sums[s] = cluster.map_shared_rank(&memory.total[0], from)[row];
    }
#pragma unroll
    for (int s = 0; s < kMost; ++s) {
      if (s >= n_splits) continue;
      const float best = fmaxf(largest, of_split[s]);
      const float origin = best == -INFINITY ? 0.0f : best;
      const float added = of_sums[s];
      of_sums[s] = exp2f(largest - origin);  // the factors from here on
      of_split[s] = exp2f(of_split[s] - origin);
      largest = best;
      total = __fmaf_rn(total, of_sums[s], __fmul_rn(added, of_split[s]));
    }
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int quad = first_quad + i * quad_step;
      if (quad >= kWidth / 4) break;
      float4 part[kMost];
#pragma unroll
      for (int s = 0; s < kMost; ++s) {
        part[s] = *reinterpret_cast<const float4*>(
            cluster.map_shared_rank(&memory.k[0][0], s < n_splits ? s : 0) +
            row * RowMemory<kWidth>::kStride + quad * 4);
      }
#pragma unroll
      for (int s = 0; s < kMost; ++s) {
        if (s >= n_splits) continue;
        sum[i].x = __fmaf_rn(sum[i].x, of_sums[s], __fmul_rn(part[s].x, of_split[s]));
        sum[i].y = __fmaf_rn(sum[i].y, of_sums[s], __fmul_rn(part[s].y, of_split[s]));
        sum[i].z = __fmaf_rn(sum[i].z, of_sums[s], __fmul_rn(part[s].z, of_split[s]));
        sum[i].w = __fmaf_rn(sum[i].w, of_sums[s], __fmul_rn(part[s].w, of_split[s]));
      }
    }
  }
};

}  // namespace kvscope::gpu::by_rows
