// Attention of a chunk: 64 to 192 queries of one KV head by 64 listed keys at a time by the matrix
// instructions of warpgroups. While one tile's scores become probabilities, the sum over the tile
// before it runs. Blocks of a cluster share the keys of a list and merge their sums through shared
// memory.
#include <cooperative_groups.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/cuda/attend_kernels.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/wgmma.cuh"

namespace kvscope::gpu {

namespace {

namespace cg = cooperative_groups;

constexpr int kKeys = 64;    // keys of a tile
constexpr int kStages = 4;   // tiles of keys and values that are on their way or in use
constexpr int kSpan = 1024;  // listed positions that are held at a time
constexpr int kMostSplits = 8;

/// kGroups warpgroups of 64 queries.
template <int kWidth, int kGroups>
struct ChunkMemory {
  static constexpr int kRows = kGroups * 64;
  static constexpr int kQueries = kRows * kWidth * 2;
  static constexpr int kTileBytes = kKeys * kWidth * 2;
  // queries, then tiles of keys and values; f32 sums after them in the same place
  static constexpr int kTiles = kQueries + 2 * kStages * kTileBytes;
  static constexpr int kBytes = 1024 + kTiles + 2 * kRows * 4 + kSpan * 4;
  static constexpr int kSumStride = kWidth + 8;  // f32: writes of a warp meet every bank
  static_assert(kRows * kSumStride * 4 <= kTiles);
};

/// Byte of chunk `part` (16 bytes) of `row` among kRows: 64 channels of all rows, then the next 64.
template <int kRows>
__device__ __forceinline__ std::uint32_t place(int row, int part) {
  return static_cast<std::uint32_t>(part / 8 * kRows * 128) + byte_in_swizzled_row(row, part % 8);
}

template <int kWidth, int kGroups>
__global__ void __launch_bounds__(kGroups * 128, 1) attend_chunk_kernel(AttendCall<Bf16> call) {
  using Memory = ChunkMemory<kWidth, kGroups>;
  constexpr int kRows = Memory::kRows;
  constexpr int kThreads = kGroups * 128;
  constexpr int kParts = kWidth / 8;  // 16-byte chunks of a row
  constexpr int kSteps = kWidth / 16;
  constexpr int kTileBytes = Memory::kTileBytes;
  extern __shared__ unsigned char unaligned[];
  unsigned char* const memory = unaligned + (-shared_address(unaligned) & 1023u);
  const std::uint32_t queries = shared_address(memory);
  const std::uint32_t tiles = queries + Memory::kQueries;
  float* const row_max = reinterpret_cast<float*>(memory + Memory::kTiles);
  float* const row_sum = row_max + kRows;
  int* const positions = reinterpret_cast<int*>(row_sum + kRows);  // [kSpan]

  cg::cluster_group cluster = cg::this_cluster();
  const int n_splits = static_cast<int>(cluster.num_blocks());
  const int split = static_cast<int>(cluster.block_rank());
  const int first_row = static_cast<int>(blockIdx.x) / n_splits * kRows;
  const int owner = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const int n_tok = call.list.n_tok;
  const int n_rows = call.heads_per_list * n_tok;  // rows are (query head of the list, token)
  const int kv_head = owner / call.owners_per_kv_head;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const Bf16* const q =
      call.q +
      (static_cast<std::int64_t>(batch) * call.n_q + owner * call.heads_per_list) * n_tok * kWidth;
  const std::int64_t kv_offset =
      (static_cast<std::int64_t>(batch) * call.n_kv + kv_head) * call.capacity * kWidth;
  const Bf16* const k = call.k + kv_offset;
  const Bf16* const v = call.v + kv_offset;

  // queries are on their way while the kernel ahead makes the lists (attend.hpp: rows are there)
  for (int i = thread; i < kRows * kParts; i += kThreads) {
    const int source = min(first_row + i / kParts, n_rows - 1);
    copy_16(queries + place<kRows>(i / kParts, i % kParts),
            q + static_cast<std::int64_t>(source) * kWidth + i % kParts * 8);
  }
  take_turn();
  const KeyList keys(call.list, batch, owner);

  // tiles of this block: a contiguous share; positions of up to kSpan of its keys
  const int n_all_tiles = (keys.n_keys + kKeys - 1) / kKeys;
  const int tile_begin = n_all_tiles * split / n_splits;
  const int n_tiles = n_all_tiles * (split + 1) / n_splits - tile_begin;
  constexpr int kHeld = kSpan / kKeys;
  const bool is_listed = keys.items != nullptr;
  const auto hold_positions = [&](int from_tile) {
    const int n = min(kSpan, (n_tiles - from_tile) * kKeys);
    for (int i = thread; i < n; i += kThreads)
      positions[i] = keys.position(min((tile_begin + from_tile) * kKeys + i, keys.n_keys - 1));
  };
  if (is_listed) {
    hold_positions(0);
    __syncthreads();
  }
  // a thread copies one chunk of every kRowStep-th row, whose places differ by whole groups of rows
  constexpr int kRowStep = kThreads / kParts;
  static_assert(kRowStep % 8 == 0);
  const int copied_row = thread / kParts;
  const int copied_part = thread % kParts;
  const std::uint32_t copied_to = tiles + place<kKeys>(copied_row, copied_part);
  const auto copy_tile = [&](int tile) {
    if (is_listed && tile > 0 && tile % kHeld == 0) {
      __syncthreads();
      hold_positions(tile);
      __syncthreads();
    }
    const std::uint32_t to =
        copied_to + static_cast<std::uint32_t>(tile % kStages * 2 * kTileBytes);
    const int first = (tile_begin + tile) * kKeys;
    const bool is_whole = first + kKeys <= keys.n_keys;
    const auto copy_row = [&](int i, int position) {
      const std::int64_t from = static_cast<std::int64_t>(position) * kWidth + copied_part * 8;
      copy_16(to + static_cast<std::uint32_t>(i * kRowStep * 128), k + from);
      copy_16(to + static_cast<std::uint32_t>(kTileBytes + i * kRowStep * 128), v + from);
    };
#pragma unroll
    for (int i = 0; i * kRowStep < kKeys; ++i) {
      const int row = copied_row + i * kRowStep;
      if (kKeys % kRowStep != 0 && row >= kKeys) break;
      copy_row(i, is_listed  ? positions[tile % kHeld * kKeys + row]
                  : is_whole ? first + row
                             : min(first + row, keys.n_keys - 1));
    }
  };
#pragma unroll
  for (int tile = 0; tile < kStages; ++tile) {
    if (tile < n_tiles) copy_tile(tile);
    end_copy_group();  // the first one holds the queries, too
  }

  float sum[kWidth / 8][4] = {};
  float score[kKeys / 8][4];
  std::uint32_t share[kKeys / 16][4];  // probabilities of the tile before
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};
  const int row_of_lane = first_row + warp * 16 + lane / 4;  // and 8 below
  const int token[2] = {row_of_lane % n_tok, (row_of_lane + 8) % n_tok};
  const std::uint64_t left =
      matrix_at(queries + static_cast<std::uint32_t>(warp / 4 * 64 * 128), 0);

  const auto begin_scores = [&](int tile) {  // score = queries keys^T
    const std::uint64_t right =
        matrix_at(tiles + static_cast<std::uint32_t>(tile % kStages * 2 * kTileBytes), 0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const std::uint64_t column = step % 4 * 2;  // 32 bytes
      multiply_rows(score, left + step / 4 * (kRows * 128 / 16) + column,
                    right + step / 4 * (kKeys * 128 / 16) + column, step);
    }
    end_products();
  };
  const auto begin_sum = [&](int tile) {  // sum += share values
    const std::uint64_t right =
        matrix_at(tiles + static_cast<std::uint32_t>(tile % kStages * 2 * kTileBytes + kTileBytes),
                  kKeys * 128);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
      multiply_columns(sum, share[step], right + step * (16 * 128 / 16));
    end_products();
  };
  float factor[2];
  const auto make_probabilities = [&](int tile) {  // of score; `factor` for what was summed before
    const int first_key = (tile_begin + tile) * kKeys;
    if (first_key + kKeys > keys.n_listed) {  // some queries see less than all of it
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int index = first_key + n * 8 + lane % 4 * 2 + i % 2;
          if (!keys.sees(token[i / 2], index)) score[n][i] = -INFINITY;
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float best_of[2] = {largest[half], -INFINITY};  // two chains are faster than one
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
        best_of[n % 2] = fmaxf(best_of[n % 2], fmaxf(score[n][2 * half], score[n][2 * half + 1]));
      float best = fmaxf(best_of[0], best_of[1]);
      best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 1));
      best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 2));
      const float origin = best == -INFINITY ? 0.0f : best * call.log2_scale;
      factor[half] = power_of_two(largest[half] * call.log2_scale - origin);
      largest[half] = best;
      float added[2] = {};
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          score[n][i] = power_of_two(fmaf(score[n][i], call.log2_scale, -origin));
          added[i % 2] += score[n][i];
        }
      }
      total[half] = total[half] * factor[half] + (added[0] + added[1]);
    }
  };
  const auto pack_probabilities = [&] {
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        share[step][i] =
            pack(score[2 * step + i / 2][i % 2 * 2], score[2 * step + i / 2][i % 2 * 2 + 1]);
    }
  };
  if (n_tiles > 0) {
    wait_for_copies<kStages - 1>();
    show_writes_to_matrix_unit();
    __syncthreads();
    hold(score);
    begin_products();
    begin_scores(0);
    wait_for_products<0>();
    hold(score);
    make_probabilities(0);
    pack_probabilities();
    for (int tile = 1; tile < n_tiles; ++tile) {
      if (tile == 1) {
        wait_for_copies<kStages - 2>();
      } else {
        wait_for_copies<1>();
      }
      show_writes_to_matrix_unit();
      __syncthreads();  // everybody has the tile, and has left the one two before it
      hold(score);
      hold(sum);
      hold(share);
      begin_products();
      begin_scores(tile);
      begin_sum(tile - 1);
      if (tile >= 2) {
        if (tile + 2 < n_tiles) copy_tile(tile + 2);
        end_copy_group();
      }
      wait_for_products<1>();
      hold(score);
      make_probabilities(tile);
      wait_for_products<0>();
      hold(sum);
      hold(share);
      if (__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f)) {  // seldom, later on
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[n][i] *= factor[i / 2];
        }
      }
      pack_probabilities();
    }
    hold(sum);
    hold(share);
    begin_products();
    begin_sum(n_tiles - 1);
    wait_for_products<0>();
    hold(sum);
  }
  wait_for_copies<0>();
  __syncthreads();

  // this block's part of every row, where the other blocks of the cluster can read it
  float* const part_sum = reinterpret_cast<float*>(memory);  // [kRows][kSumStride]
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] += __shfl_xor_sync(0xffffffffu, total[half], 1);
    total[half] += __shfl_xor_sync(0xffffffffu, total[half], 2);
    const int row = warp * 16 + half * 8 + lane / 4;
    if (lane % 4 == 0) {
      row_max[row] = largest[half] * call.log2_scale;
      row_sum[row] = total[half];
    }
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      *reinterpret_cast<float2*>(part_sum + row * Memory::kSumStride + n * 8 + lane % 4 * 2) =
          make_float2(sum[n][2 * half], sum[n][2 * half + 1]);
    }
  }
  cluster.sync();
  const BlockParts parts{part_sum,           row_max,   row_sum,
                         Memory::kSumStride, first_row, min(kRows, n_rows - first_row)};
  merge_parts<kWidth>(call, cluster, parts, owner, batch);
  cluster.sync();  // nobody ends while its memory is read
}

/// How queries and keys are divided among blocks.
struct Division {
  int n_groups;  // of 64 queries of a block
  int n_splits;  // blocks that share a list's keys
};

template <int kWidth, int kGroups>
Launch launch_of(const CallShape& shape, const AttendCall<Bf16>& call, int n_splits) {
  using Memory = ChunkMemory<kWidth, kGroups>;
  const int n_rows = call.heads_per_list * call.list.n_tok;
  const int n_blocks = (n_rows + Memory::kRows - 1) / Memory::kRows * n_splits;
  return {{n_blocks, shape.n_kv * call.owners_per_kv_head, shape.n_batch},
          kGroups * 128,
          Memory::kBytes,
          n_splits};
}

/// Clusters of n_splits such blocks that an H200 runs at a time (as it says, or as times showed): a
/// cluster lies within a group of 16 or 18 multiprocessors, and one group has fewer. 0: not known.
int clusters_at_a_time(int n_splits) {
  constexpr std::array<int, kMostSplits> kCounts = {132, 66, 0, 30, 16, 16, 0, 15};
  return kCounts[static_cast<std::size_t>(n_splits - 1)];
}

/// The division that takes the least time by a model of what an H200 took: a share for every block,
/// more for large clusters, and one for every tile of keys.
template <int kWidth, int kGroups>
void try_groups(const CallShape& shape, const AttendCall<Bf16>& call, int asked_splits,
                Division& best, double& least) {
  const DeviceLists& lists = call.list.lists;
  const std::int64_t most_keys =
      lists.items == nullptr
          ? shape.capacity
          : static_cast<std::int64_t>(lists.stride) * lists.page_size + call.list.n_tok;
  const double n_tiles = static_cast<double>((most_keys + kKeys - 1) / kKeys);
  for (int n_splits = 1; n_splits <= kMostSplits; ++n_splits) {
    if (asked_splits > 0 ? n_splits != asked_splits : clusters_at_a_time(n_splits) == 0) continue;
    const dim3 grid = launch_of<kWidth, kGroups>(shape, call, n_splits).grid;
    const std::int64_t n_clusters = static_cast<std::int64_t>(grid.x) / n_splits * grid.y * grid.z;
    const int at_a_time = std::max(1, clusters_at_a_time(n_splits));
    const auto n_waves = static_cast<double>((n_clusters + at_a_time - 1) / at_a_time);
    const double microseconds = n_waves * (8.0 + kGroups + (n_splits > 4 ? 5.0 : 0.0) +
                                           std::ceil(n_tiles / n_splits) * (0.6 + 0.45 * kGroups));
    if (best.n_groups == 0 || microseconds < least) {
      best = {kGroups, n_splits};
      least = microseconds;
    }
  }
}

template <int kWidth, int kGroups>
void start(const CallShape& shape, const AttendCall<Bf16>& call, int n_splits,
           StreamHandle stream) {
  launch(stream, launch_of<kWidth, kGroups>(shape, call, n_splits),
         "start the attention of a chunk", attend_chunk_kernel<kWidth, kGroups>, call);
}

template <int kWidth>
void start(const CallShape& shape, const AttendCall<Bf16>& call, int asked_splits,
           StreamHandle stream) {
  Division best{0, 0};
  double least = 0.0;
  try_groups<kWidth, 1>(shape, call, asked_splits, best, least);
  try_groups<kWidth, 2>(shape, call, asked_splits, best, least);
  try_groups<kWidth, 3>(shape, call, asked_splits, best, least);
  best.n_groups == 1   ? start<kWidth, 1>(shape, call, best.n_splits, stream)
  : best.n_groups == 2 ? start<kWidth, 2>(shape, call, best.n_splits, stream)
                       : start<kWidth, 3>(shape, call, best.n_splits, stream);
}

}  // namespace

void attend_chunk(const CallShape& shape, const AttendCall<Bf16>& call, int n_splits,
                  StreamHandle stream) {
  shape.d_head == 64 ? start<64>(shape, call, n_splits, stream)
                     : start<128>(shape, call, n_splits, stream);
}

}  // namespace kvscope::gpu
