// Attention of a chunk: 64 or 128 queries of one KV head by 64 listed keys at a time on the
// tensor cores. Blocks of a cluster share the keys of a list and merge their sums through shared
// memory.
#include <cooperative_groups.h>

#include "core/cuda/attend_kernels.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

namespace cg = cooperative_groups;

constexpr int kKeys = 64;    // keys of a tile
constexpr int kStages = 3;   // tiles of keys and values that are on their way or in use
constexpr int kSpan = 1024;  // listed positions that are held at a time

/// kRows queries of a block, 16 per warp.
template <int kWidth, int kRows>
struct ChunkMemory {
  static constexpr int kTileBytes = kKeys * kWidth * 2;
  // tiles of keys and values; queries before, and f32 sums after them, in the same place
  static constexpr int kTiles = 2 * kStages * kTileBytes;
  static constexpr int kBytes = kTiles + 2 * kRows * 4 + kSpan * 4;
  static_assert(kRows * kWidth * 4 <= kTiles);
};

/// Byte of chunk `part` (16 bytes) of `row` in a tile: rotated so that ldmatrix meets every bank
/// once.
template <int kWidth>
__device__ __forceinline__ int place(int row, int part) {
  return row * kWidth * 2 + ((part ^ (row & 7)) << 4);
}

template <int kWidth, int kRows>
__global__ void __launch_bounds__(kRows * 2, kRows == 64 ? 2 : 1)
    attend_chunk_kernel(AttendCall<Bf16> call) {
  using Memory = ChunkMemory<kWidth, kRows>;
  constexpr int kThreads = kRows * 2;
  constexpr int kParts = kWidth / 8;               // 16-byte chunks of a row
  constexpr int kRowsPerPass = kThreads / kParts;  // rows that one pass of copies brings
  constexpr int kPasses = kKeys / kRowsPerPass;
  constexpr int kSteps = kWidth / 16;
  constexpr int kTileBytes = Memory::kTileBytes;
  extern __shared__ __align__(128) unsigned char memory[];
  const std::uint32_t base = shared_address(memory);
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
  const int part = thread % kParts;
  const int pass_row = thread / kParts;
  const Bf16* const q =
      call.q +
      (static_cast<std::int64_t>(batch) * call.n_q + owner * call.heads_per_list) * n_tok * kWidth;
  const std::int64_t kv_offset =
      (static_cast<std::int64_t>(batch) * call.n_kv + kv_head) * call.capacity * kWidth;
  const Bf16* const k = call.k + kv_offset;
  const Bf16* const v = call.v + kv_offset;

  // queries are on their way while the kernel ahead makes the lists (attend.hpp: rows are there)
#pragma unroll
  for (int i = 0; i < kRows / kRowsPerPass; ++i) {
    const int row = i * kRowsPerPass + pass_row;
    const int source = min(first_row + row, n_rows - 1);
    copy_16(base + place<kWidth>(row, part),
            q + static_cast<std::int64_t>(source) * kWidth + part * 8);
  }
  end_copy_group();
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const KeyList keys(call.list, batch, owner);

  // tiles of this block: a contiguous share; positions of up to kSpan of its keys
  const int n_tiles = (keys.n_keys + kKeys - 1) / kKeys;
  const int tile_begin = n_tiles * split / n_splits;
  const int tile_end = n_tiles * (split + 1) / n_splits;
  const auto hold_positions = [&](int from_tile) {
    const int n = min(kSpan, (tile_end - from_tile) * kKeys);
    for (int i = thread; i < n; i += kThreads)
      positions[i] = keys.position(min(from_tile * kKeys + i, keys.n_keys - 1));
  };
  if (tile_begin < tile_end) hold_positions(tile_begin);
  wait_for_copies<0>();
  __syncthreads();
  std::uint32_t left[kSteps][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int row = warp * 16 + lane % 16;
    load_tiles(left[step], base + place<kWidth>(row, step * 2 + lane / 16));
  }
  __syncthreads();

  int n_copied = 0;  // tiles whose copies have begun
  const auto copy_next = [&] {
    if (tile_begin + n_copied < tile_end) {
      constexpr int kHeld = kSpan / kKeys;
      if (n_copied > 0 && n_copied % kHeld == 0) {
        __syncthreads();
        hold_positions(tile_begin + n_copied);
        __syncthreads();
      }
      const std::uint32_t to_k = base + n_copied % kStages * 2 * kTileBytes;
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        const int row = i * kRowsPerPass + pass_row;
        const std::int64_t from =
            static_cast<std::int64_t>(positions[n_copied % kHeld * kKeys + row]) * kWidth +
            part * 8;
        copy_16(to_k + place<kWidth>(row, part), k + from);
        copy_16(to_k + kTileBytes + place<kWidth>(row, part), v + from);
      }
      ++n_copied;
    }
    end_copy_group();
  };

  float sum[kWidth / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};
  const int row_of_lane = first_row + warp * 16 + lane / 4;  // and 8 below
  const int token[2] = {row_of_lane % n_tok, (row_of_lane + 8) % n_tok};

#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) copy_next();
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    copy_next();  // to the place of the tile before this one, which every warp has left
    const std::uint32_t k_tile = base + (tile - tile_begin) % kStages * 2 * kTileBytes;
    const std::uint32_t v_tile = k_tile + kTileBytes;

    float score[kKeys / 8][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < kKeys / 16; ++pair) {
        std::uint32_t right[4];
        const int row = pair * 16 + lane / 16 * 8 + lane % 8;
        load_tiles(right, k_tile + place<kWidth>(row, step * 2 + lane / 8 % 2));
        multiply_add(score[2 * pair], left[step][0], left[step][1], left[step][2], left[step][3],
                     right[0], right[1]);
        multiply_add(score[2 * pair + 1], left[step][0], left[step][1], left[step][2],
                     left[step][3], right[2], right[3]);
      }
    }
    const bool is_cut =
        tile * kKeys + kKeys > keys.n_listed;  // some queries see less than all of it
    if (is_cut) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int index = tile * kKeys + n * 8 + lane % 4 * 2 + i % 2;
          if (!keys.sees(token[i / 2], index)) score[n][i] = -INFINITY;
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float best = largest[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
        best = fmaxf(best, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
      best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 1));
      best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 2));
      const float origin = best == -INFINITY ? 0.0f : best * call.log2_scale;
      const float factor = exp2f(largest[half] * call.log2_scale - origin);
      largest[half] = best;
      float added = 0.0f;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          score[n][i] = exp2f(score[n][i] * call.log2_scale - origin);
          added += score[n][i];
        }
      }
      total[half] = total[half] * factor + added;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        sum[n][2 * half] *= factor;
        sum[n][2 * half + 1] *= factor;
      }
    }
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const std::uint32_t p0 = pack(score[2 * step][0], score[2 * step][1]);
      const std::uint32_t p1 = pack(score[2 * step][2], score[2 * step][3]);
      const std::uint32_t p2 = pack(score[2 * step + 1][0], score[2 * step + 1][1]);
      const std::uint32_t p3 = pack(score[2 * step + 1][2], score[2 * step + 1][3]);
#pragma unroll
      for (int pair = 0; pair < kWidth / 16; ++pair) {
        std::uint32_t right[4];
        const int row = step * 16 + lane % 16;
        load_tiles_transposed(right, v_tile + place<kWidth>(row, pair * 2 + lane / 16));
        multiply_add(sum[2 * pair], p0, p1, p2, p3, right[0], right[1]);
        multiply_add(sum[2 * pair + 1], p0, p1, p2, p3, right[2], right[3]);
      }
    }
  }
  wait_for_copies<0>();
  __syncthreads();

  // this block's part of every row, where the other blocks of the cluster can read it
  float* const part_sum = reinterpret_cast<float*>(memory);  // [kRows][kWidth]
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
      *reinterpret_cast<float2*>(part_sum + row * kWidth + n * 8 + lane % 4 * 2) =
          make_float2(sum[n][2 * half], sum[n][2 * half + 1]);
    }
  }
  cluster.sync();
  const BlockParts parts{part_sum, row_max, row_sum, first_row, min(kRows, n_rows - first_row)};
  merge_parts<kWidth>(call, cluster, parts, owner, batch);
  cluster.sync();  // nobody ends while its memory is read
}

template <int kWidth, int kRows>
void start(const CallShape& shape, const AttendCall<Bf16>& call, int n_splits,
           StreamHandle stream) {
  const int n_rows = call.heads_per_list * call.list.n_tok;
  Launch how;
  how.grid = dim3(static_cast<unsigned>((n_rows + kRows - 1) / kRows * n_splits),
                  static_cast<unsigned>(shape.n_kv * call.owners_per_kv_head),
                  static_cast<unsigned>(shape.n_batch));
  how.threads = kRows * 2;
  how.cluster = n_splits;
  how.shared_bytes = ChunkMemory<kWidth, kRows>::kBytes;
  launch(stream, how, "start the attention of a chunk", attend_chunk_kernel<kWidth, kRows>, call);
}

}  // namespace

void attend_chunk(const CallShape& shape, const AttendCall<Bf16>& call, int n_splits,
                  StreamHandle stream) {
  const bool is_wide = call.heads_per_list * call.list.n_tok > 64;
  if (shape.d_head == 64) {
    is_wide ? start<64, 128>(shape, call, n_splits, stream)
            : start<64, 64>(shape, call, n_splits, stream);
  } else {
    is_wide ? start<128, 128>(shape, call, n_splits, stream)
            : start<128, 64>(shape, call, n_splits, stream);
  }
}

}  // namespace kvscope::gpu
