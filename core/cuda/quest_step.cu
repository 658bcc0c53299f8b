// A decode step of Quest in one kernel: a cluster of blocks per sequence and KV head scores the
// boxes of all pages, cuts the list (or one per query head), and attends to it. Boxes, keys and
// values come through one ring of stages per block. Blocks divide the boxes' tiles and tell each
// other the bounds; then each of them cuts the whole list for itself, which takes no more barriers
// of the cluster, and attends to its share of the list's keys.
//
// Nothing here depends on the kernel ahead but boxes that an append() of many keys makes, and
// memory that it may still read: by contract q, keys and positions are there, and the boxes that
// the last step may be writing are made from their keys. So the kernel waits where it first
// writes, with the list's keys already on their way, and the kernel behind it begins then.
#include "core/cuda/quest_step.cuh"

#include <algorithm>
#include <string>

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/quest_boxes.cuh"
#include "core/cuda/quest_step_keys.cuh"
#include "core/cuda/short_list.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kLeastStages = 4;
constexpr int kBytesOfTwo = 113 * 1024;  // for each of two blocks of a multiprocessor

/// By a warp: the boxes that the kernel ahead may be writing, or that nobody wrote: the newest
/// page's, and the one before where n_past begins a page.
template <int kWidth>
__device__ __forceinline__ void make_fresh_boxes(const Step<kWidth>& step) {
  constexpr int kEach = kWidth / 32;
  const int page_size = step.call.lists.page_size;
  for (int page = step.first_fresh; page < step.n_pages; ++page) {
    if (page / kTile % step.n_blocks != step.rank) continue;
    float high[kEach];
    float low[kEach];
    find_box(step.rows_of(step.call.attention.k), page * page_size,
             min((page + 1) * page_size, step.n_context()), high, low);
    Bf16* const to = step.memory.fresh[page % 2] + step.lane * kEach;
#pragma unroll
    for (int c = 0; c < kEach; ++c) {
      store_element(to + c, high[c]);
      store_element(to + kWidth + c, low[c]);
    }
  }
}

/// A page's bound to blocks first_block, first_block + block_step, ...
template <int kWidth>
__device__ __forceinline__ void tell_bound(const Step<kWidth>& step, cg::cluster_group& cluster,
                                           int list, int page, float bound, int first_block,
                                           int block_step) {
  float* const own = step.bounds_of(list) + page;
  for (int b = first_block; b < step.n_blocks; b += block_step)
    *in_block(cluster, step.n_blocks, own, b) = bound;
}

/// Bounds of the block's boxes, into every block's memory.
template <int kWidth>
__device__ __forceinline__ void score_boxes(const Step<kWidth>& step, cg::cluster_group& cluster) {
  constexpr int kChunks = 2 * kWidth / 32;
  constexpr int kRowBytes = 4 * kWidth;
  const int n_vectors = step.call.bounds.n_vectors;
  bool others_run = step.n_blocks == 1;  // until then their memory cannot be written
  for (int i = step.warp; i < step.n_box_tiles; i += kStepWarps) {
    step.ring.wait(i);
    const unsigned char* const stage = step.ring.at(i);
    const int first = step.tile_of(i) * kTile;
    const auto row_at = [&](int row) {
      const int page = first + row;
      return page < step.first_fresh
                 ? stage + row * kRowBytes
                 : reinterpret_cast<const unsigned char*>(step.memory.fresh[page % 2]);
    };
    uint4 low[1][kChunks];
    uint4 high[1][kChunks];
    load_chunks(low[0], row_at(step.r), step.t, step.r % 2 != 0);
    load_chunks(high[0], row_at(step.r + 8), step.t, step.r % 2 != 0);
    __syncwarp();
    const int next = i + step.ring.n_stages;
    if (step.lane == 0 && next < step.n_box_tiles) step.fetch_boxes(next);

    float product[1][1][4] = {};
    if (step.call.bounds.n_parts == 1) {  // numbers of bf16 are their first term
      multiply_by_vectors<1>(product, low, high, step.memory.right, step.lane);
    } else {
      multiply_by_vectors(product, low, high, step.memory.right, step.lane);
    }
    if (!others_run) {
      __syncwarp();
      cluster.barrier_wait();
      others_run = true;
    }
    if (step.n_lists() > 1) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int page = first + n / 2 * 8 + step.r;
        if (page < step.n_pages && 2 * step.t + n % 2 < n_vectors)
          tell_bound(step, cluster, 2 * step.t + n % 2, page, product[0][0][n], 0, 1);
      }
      continue;
    }
    float best[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x = -INFINITY;
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        if (2 * step.t + u < n_vectors) x = fmaxf(x, product[0][0][2 * half + u]);
      }
      x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
      best[half] = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
    }
    // of a quad, lanes 0 and 1 write rows r and r + 8, and 2 and 3 to every other block
    const int page = first + step.t % 2 * 8 + step.r;
    if (page < step.n_pages)
      tell_bound(step, cluster, 0, page, step.t % 2 == 0 ? best[0] : best[1], step.t / 2, 2);
  }
  if (!others_run) cluster.barrier_wait();
}

/// The lists from the bounds. One list is cut by every block for itself; of several, blocks take
/// some each and tell the others.
template <int kWidth>
__device__ __forceinline__ void cut_lists(const Step<kWidth>& step, cg::cluster_group& cluster,
                                          const Limits& limits) {
  const int thread = static_cast<int>(threadIdx.x);
  const int n_lists = step.n_lists();
  for (int l = n_lists == 1 ? 0 : step.rank; l < n_lists; l += step.n_blocks) {
    std::int32_t* const items = step.items_of(l);
    write_short_list(step.memory.cut, cluster, step.bounds_of(l), limits, items);
    __syncthreads();
    if (n_lists == 1) return;
    for (int b = 0; b < step.n_blocks; ++b) {
      if (b == step.rank) continue;
      std::int32_t* const to = in_block(cluster, step.n_blocks, items, b);
      for (int i = thread; i < limits.n_listed(); i += kStepThreads) to[i] = items[i];
    }
  }
  sync_all(cluster, step.n_blocks);
}

/// Joins what the block's warps found, and tells it to the blocks that write the answer: of the
/// quads of channels of all heads, each block writes some.
template <int kWidth>
__device__ __forceinline__ void tell_parts(const Step<kWidth>& step, cg::cluster_group& cluster,
                                           const float* sums) {
  StepMemory<kWidth>& memory = step.memory;
  const int n_quads = step.call.attention.heads_per_list * (kWidth / 4);
  const int n_of_block = (n_quads + step.n_blocks - 1) / step.n_blocks;
  for (int i = static_cast<int>(threadIdx.x); i < n_quads; i += kStepThreads) {
    const int head = i / (kWidth / 4);
    float best = -INFINITY;
#pragma unroll
    for (int w = 0; w < kStepWarps; ++w) best = fmaxf(best, memory.warp_max[w][head]);
    float total = 0.0f;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < kStepWarps; ++w) {
      const float factor = best == -INFINITY ? 0.0f : exp2f(memory.warp_max[w][head] - best);
      const float4 x = reinterpret_cast<const float4*>(sums)[w * n_quads + i];
      total += factor * memory.warp_total[w][head];
      sum.x += factor * x.x, sum.y += factor * x.y, sum.z += factor * x.z, sum.w += factor * x.w;
    }
    const int writer = i % step.n_blocks;
    const int to = step.rank * n_of_block + i / step.n_blocks;
    *in_block(cluster, step.n_blocks, memory.part_sum + to, writer) = sum;
    if (i % (kWidth / 4) == 0) {
      for (int b = 0; b < step.n_blocks; ++b)
        *in_block(cluster, step.n_blocks, &memory.part_scale[step.rank][head], b) =
            make_float2(best, total);
    }
  }
}

/// Joins what all blocks found for this block's quads.
template <int kWidth>
__device__ __forceinline__ void write_answer(const Step<kWidth>& step, int kv_head, int batch) {
  const StepMemory<kWidth>& memory = step.memory;
  const AttendCall<Bf16>& call = step.call.attention;
  const std::int64_t first_row =
      static_cast<std::int64_t>(batch) * call.n_q + kv_head * call.heads_per_list;
  const int n_quads = call.heads_per_list * (kWidth / 4);
  const int n_of_block = (n_quads + step.n_blocks - 1) / step.n_blocks;
  for (int at = static_cast<int>(threadIdx.x); at * step.n_blocks + step.rank < n_quads;
       at += kStepThreads) {
    const int i = at * step.n_blocks + step.rank;
    const int head = i / (kWidth / 4);
    const int column = i % (kWidth / 4) * 4;
    float best = -INFINITY;
    for (int b = 0; b < step.n_blocks; ++b) best = fmaxf(best, memory.part_scale[b][head].x);
    float total = 0.0f;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int b = 0; b < step.n_blocks; ++b) {
      const float2 scale = memory.part_scale[b][head];
      const float factor = scale.x == -INFINITY ? 0.0f : exp2f(scale.x - best);
      const float4 x = memory.part_sum[b * n_of_block + at];
      total += factor * scale.y;
      sum.x += factor * x.x, sum.y += factor * x.y, sum.z += factor * x.z, sum.w += factor * x.w;
    }
    const float share = total > 0.0f ? 1.0f / total : 0.0f;
    store_four(call.out + (first_row + head) * kWidth + column, sum.x * share, sum.y * share,
               sum.z * share, sum.w * share);
    if (column == 0) {
      constexpr float kLn2 = 0.69314718055994531f;
      // NaN stays NaN, which is reported; 0 is a query without keys
      call.lse[first_row + head] = total == 0.0f ? -INFINITY : (best + log2f(total)) * kLn2;
    }
  }
}

/// Bounds, lists and newest box, for whoever asks later.
template <int kWidth>
__device__ __forceinline__ void write_choice(const Step<kWidth>& step, int n_items) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int l = 0; l < step.n_lists(); ++l) {
    const auto list = static_cast<std::int64_t>(step.pair) * step.n_lists() + l;
    float* const bounds = step.call.bounds.scores + list * step.call.bounds.stride;
    for (int i = step.rank * kStepThreads + thread; i < step.n_pages;
         i += step.n_blocks * kStepThreads)
      bounds[i] = step.bounds_of(l)[i];
    if (l % step.n_blocks != step.rank) continue;
    std::int32_t* const items = step.call.lists.items + list * step.call.lists.item_stride;
    for (int i = thread; i < n_items; i += kStepThreads) items[i] = step.items_of(l)[i];
    if (thread == 0) step.call.lists.counts[list] = n_items;
  }
  const int newest = step.n_pages - 1;
  if (newest / kTile % step.n_blocks == step.rank) {
    for (int c = thread; c < 2 * kWidth; c += kStepThreads)
      step.boxes()[static_cast<std::int64_t>(newest) * 2 * kWidth + c] =
          step.memory.fresh[newest % 2][c];
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kStepThreads, 2)
    quest_step_kernel(const __grid_constant__ StepCall call) {
  constexpr int kChunks = kWidth / 32;
  extern __shared__ __align__(128) unsigned char bytes[];
  auto& memory =
      *reinterpret_cast<StepMemory<kWidth>*>(bytes + call.n_stages * kStageBytes<kWidth>);
  cg::cluster_group cluster = cg::this_cluster();
  const int thread = static_cast<int>(threadIdx.x);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const int lane = thread % 32;
  const int n_past = call.attention.list.n_past[batch];  // nobody but the first warp waits for it
  float* const bounds = reinterpret_cast<float*>(&memory + 1);
  Step<kWidth> step{
      call,
      memory,
      {&memory.ring, bytes, kStageBytes<kWidth>, call.n_stages, call.stage_share},
      bounds,
      reinterpret_cast<std::int32_t*>(bounds + n_lists_of(call.bounds) * call.bounds.stride),
      batch * call.attention.n_kv + kv_head,
      static_cast<int>(cluster.num_blocks()),
      static_cast<int>(cluster.block_rank()),
      thread / 32,
      lane,
      lane / 4,
      lane % 4};
  if (step.n_blocks > 1) cluster.barrier_arrive();
  if (step.warp > 0) {
    lay_out_vectors<2 * kWidth, 1, kStepThreads - 32>(call.bounds, step.pair, thread - 32,
                                                      memory.right);
  } else if (lane == 0) {
    step.ring.begin();
  }
  step.take_position(n_past);
  if (!call.bounds.rows_are_there) wait_for_earlier_kernels();
  if (step.warp == 0) {
    __syncwarp();
    if (lane < min(call.n_stages, step.n_box_tiles)) step.fetch_boxes(lane);
    __syncwarp();
    make_fresh_boxes(step);
  }
  __syncthreads();

  score_boxes(step, cluster);
  sync_all(cluster, step.n_blocks);  // every block has all bounds, and no stage is in use

  take_turn();

  const Limits limits = limits_of(call.lists, n_past);
  const int n_items = limits.n_listed();
  cut_lists(step, cluster, limits);

  const ListedKeys<kWidth> keys(step, n_items);
  for (int i = step.warp; i < min(call.n_stages, keys.n_tiles); i += kStepWarps) keys.fetch(i);
  uint4 q[kChunks];  // of head r, as right factor; heads that are not there are zero
  const int n_heads = call.attention.heads_per_list;
  const Bf16* const q_row =
      call.attention.q +
      (static_cast<std::int64_t>(step.pair) * n_heads + min(step.r, n_heads - 1)) * kWidth;
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const uint4 x = *reinterpret_cast<const uint4*>(q_row + j * 32 + step.t * 8);
    q[j] = step.r < n_heads ? x : make_uint4(0, 0, 0, 0);
  }
  write_choice(step, n_items);

  WarpSums<kWidth> found;
  for (int i = step.warp; i < keys.n_tiles; i += kStepWarps) attend_tile(found, step, keys, i, q);

  __syncthreads();  // the ring is empty: sums take its place
  auto* const sums = reinterpret_cast<float*>(bytes);
  store_sums(found, step, sums);
  __syncthreads();
  tell_parts(step, cluster, sums);
  sync_all(cluster, step.n_blocks);
  write_answer(step, kv_head, batch);
}

/// Bytes of a block beside its stages: bounds and lists last.
template <int kWidth>
std::int64_t fixed_bytes(const RowScores& bounds, const TopLists& lists) {
  return static_cast<std::int64_t>(sizeof(StepMemory<kWidth>)) +
         4 * n_lists_of(bounds) * (bounds.stride + lists.item_stride);
}

/// Stages of a block when two of them share a multiprocessor.
template <int kWidth>
int stages_for(const RowScores& bounds, const TopLists& lists) {
  const std::int64_t room = kBytesOfTwo - fixed_bytes<kWidth>(bounds, lists);
  return static_cast<int>(std::clamp<std::int64_t>(room / kStageBytes<kWidth>, 0, kMostStages));
}

template <int kWidth>
void start_step(const CallShape& shape, const QuestStep& step, StreamHandle stream) {
  StepCall call;
  call.bounds = step.bounds;
  call.lists = step.lists;
  const DeviceLists lists{step.lists.items, step.lists.counts, step.lists.item_stride, shape.n_kv,
                          step.lists.page_size};
  call.attention = attend_call<Bf16>(shape, step.rows, lists, step.out, step.lse,
                                     {.own_keys = OwnKeys::in_list});
  call.n_stages = step.n_stages;
  if (call.n_stages == 0) call.n_stages = stages_for<kWidth>(step.bounds, step.lists);
  call.stage_share = BulkRing::share_of(call.n_stages);
  const int n_blocks =
      step.n_blocks != 0 ? step.n_blocks : splits_for(shape.n_batch * shape.n_kv, 8);
  const auto bytes = static_cast<int>(call.n_stages * kStageBytes<kWidth> +
                                      fixed_bytes<kWidth>(step.bounds, step.lists));
  const char* const what = "start a step of Quest";
  // all of it to shared memory: two blocks of a multiprocessor, of two kernels perhaps
  check(cudaFuncSetAttribute(quest_step_kernel<kWidth>,
                             cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        what);
  launch(stream, {{n_blocks, shape.n_kv, shape.n_batch}, kStepThreads, bytes, n_blocks}, what,
         quest_step_kernel<kWidth>, call);
}

}  // namespace

bool takes_quest_step(const CallShape& shape, const RowScores& bounds, const TopLists& lists) {
  static_assert(kLeastStages * kStageBytes<64> >= kStepWarps * kMostHeads * 64 * 4);
  static_assert(kLeastStages * kStageBytes<128> >= kStepWarps * kMostHeads * 128 * 4);
  if (shape.dtype != DType::bf16 || shape.group() > kMostHeads) return false;
  const int n_stages =
      shape.d_head == 64 ? stages_for<64>(bounds, lists) : stages_for<128>(bounds, lists);
  return n_stages >= kLeastStages;
}

void quest_step(const CallShape& shape, const QuestStep& step, StreamHandle stream) {
  if (step.n_blocks < 0 || step.n_blocks > kMostBlocks)
    throw ShapeError("a step of Quest on the GPU: expected 1 to 16 blocks, found " +
                     std::to_string(step.n_blocks));
  if (step.n_stages != 0 && (step.n_stages < kLeastStages || step.n_stages > kMostStages))
    throw ShapeError("a step of Quest on the GPU: expected rings of 4 to 32 stages, found " +
                     std::to_string(step.n_stages));
  (shape.d_head == 64 ? start_step<64> : start_step<128>)(shape, step, stream);
}

}  // namespace kvscope::gpu
