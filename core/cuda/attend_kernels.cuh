// What the attention kernels share: their arguments, and the merge of a cluster's parts.
#pragma once

#include <cooperative_groups.h>

#include <bit>

#include "core/cuda/attend.hpp"
#include "core/cuda/key_list.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

template <class T>
struct AttendCall {
  ListSource list;
  const T* q;
  const T* k;
  const T* v;
  T* out;
  float* lse;
  std::int64_t capacity;
  int n_q;
  int n_kv;
  int heads_per_list;      // query heads that a list serves
  int owners_per_kv_head;  // lists of a KV head: 1, or group
  float log2_scale;        // score_scale / ln 2: exponents are powers of two
  AttendRule rule;         // of attend_rows alone
  float scale_over_cap = 0.0f;
  float log2_cap = 0.0f;
};

template <class T>
AttendCall<T> attend_call(const CallShape& shape, const DeviceRows& rows, const DeviceLists& lists,
                          void* out, float* lse, const AttendOptions& options) {
  constexpr float kLog2E = 1.4426950408889634f;
  AttendCall<T> call;
  const int n_owners = lists.items == nullptr ? shape.n_kv : lists.n_owners;
  call.list = {lists, rows.n_past, rows.n_tok,
               std::countr_zero(static_cast<unsigned>(lists.page_size)),
               options.own_keys == OwnKeys::causal};
  call.q = static_cast<const T*>(rows.q);
  call.k = static_cast<const T*>(rows.k);
  call.v = static_cast<const T*>(rows.v);
  call.out = static_cast<T*>(out);
  call.lse = lse;
  call.capacity = shape.capacity;
  call.n_q = shape.n_q;
  call.n_kv = shape.n_kv;
  call.heads_per_list = shape.n_q / n_owners;
  call.owners_per_kv_head = n_owners / shape.n_kv;
  call.log2_scale = shape.score_scale * kLog2E;
  call.rule = options.rule;
  if (call.rule.score_cap > 0.0f) {
    call.scale_over_cap = shape.score_scale / call.rule.score_cap;
    call.log2_cap = call.rule.score_cap * kLog2E;
  }
  return call;
}

/// At most one block for each of the 132 multiprocessors of H100 and H200.
inline int splits_for(int n_blocks, int most) {
  int n_splits = 1;
  while (n_splits * 2 <= most && n_blocks * n_splits * 2 <= 132) n_splits *= 2;
  return n_splits;
}

/// n_splits 0: by the shapes.
void attend_chunk(const CallShape& shape, const AttendCall<Bf16>& call, int n_splits,
                  StreamHandle stream);
void attend_decode(const CallShape& shape, const AttendCall<Bf16>& call, int n_splits,
                   StreamHandle stream);
template <class T>
void attend_rows(const CallShape& shape, const AttendCall<T>& call, int n_splits,
                 StreamHandle stream);

/// What a block found for its rows, in its shared memory.
struct BlockParts {
  float* sum;    // [n_block_rows][sum_stride]
  float* max;    // [n_block_rows] largest scores times log2_scale
  float* total;  // [n_block_rows]
  int sum_stride;
  int first_row;
  int n_rows;  // of this block
};

template <int kWidth, int kMostSplits, class T>
__device__ __forceinline__ void merge_some(const AttendCall<T>& call,
                                           cooperative_groups::cluster_group& cluster,
                                           const BlockParts& parts, int owner, int batch) {
  const int n_splits = static_cast<int>(cluster.num_blocks());
  const int split = static_cast<int>(cluster.block_rank());
  const int n_threads = static_cast<int>(blockDim.x);
  constexpr int kQuads = kWidth / 4;
  const std::int64_t out_row =
      (static_cast<std::int64_t>(batch) * call.n_q + owner * call.heads_per_list) *
          call.list.n_tok +
      parts.first_row;
  for (int i = split * n_threads + static_cast<int>(threadIdx.x); i < parts.n_rows * kQuads;
       i += n_splits * n_threads) {
    const int row = i / kQuads;
    const int column = i % kQuads * 4;
    float of_split[kMostSplits];
    float total_of[kMostSplits];
    float4 sum_of[kMostSplits];
#pragma unroll
    for (int s = 0; s < kMostSplits; ++s) {
      const int from =
          s < n_splits ? s : 0;  // loads without branches: all are on their way at once
      of_split[s] = cluster.map_shared_rank(parts.max, from)[row];
      total_of[s] = cluster.map_shared_rank(parts.total, from)[row];
      sum_of[s] = *reinterpret_cast<const float4*>(cluster.map_shared_rank(parts.sum, from) +
                                                   row * parts.sum_stride + column);
    }
    float largest = -INFINITY;
#pragma unroll
    for (int s = 0; s < kMostSplits; ++s) largest = fmaxf(largest, of_split[s]);
    float total = 0.0f;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int s = 0; s < kMostSplits; ++s) {
      const bool is_empty = s >= n_splits || of_split[s] == -INFINITY;
      const float factor = is_empty ? 0.0f : exp2f(of_split[s] - largest);
      total += factor * total_of[s];
      sum.x += factor * sum_of[s].x, sum.y += factor * sum_of[s].y;
      sum.z += factor * sum_of[s].z, sum.w += factor * sum_of[s].w;
    }
    const float share = total > 0.0f ? 1.0f / total : 0.0f;
    store_four(call.out + (out_row + row) * kWidth + column, sum.x * share, sum.y * share,
               sum.z * share, sum.w * share);
    if (column == 0) {
      constexpr float kLn2 = 0.69314718055994531f;
      // NaN stays NaN, which is reported; 0 is a query without keys
      call.lse[out_row + row] = total == 0.0f ? -INFINITY : (largest + log2f(total)) * kLn2;
    }
  }
}

/// Joins what the blocks of a cluster found for their rows, and writes out and lse. Blocks divide
/// the elements. Between two barriers of the cluster.
template <int kWidth, class T>
__device__ __forceinline__ void merge_parts(const AttendCall<T>& call,
                                            cooperative_groups::cluster_group& cluster,
                                            const BlockParts& parts, int owner, int batch) {
  const int n_splits = static_cast<int>(cluster.num_blocks());
  if (n_splits == 1) {
    merge_some<kWidth, 1>(call, cluster, parts, owner, batch);
  } else if (n_splits <= 4) {
    merge_some<kWidth, 4>(call, cluster, parts, owner, batch);
  } else if (n_splits <= 8) {
    merge_some<kWidth, 8>(call, cluster, parts, owner, batch);
  } else {
    merge_some<kWidth, 16>(call, cluster, parts, owner, batch);
  }
}

}  // namespace kvscope::gpu
