// Attention of a few queries (decode, verification) over a list: each warp takes 16 keys at a
// time from device memory straight into the tensor cores' registers. Warps of a block, then
// blocks of a cluster, merge their sums through shared memory.
//
// A product does not depend on the order of its channels, so lanes load 16 consecutive bytes of a
// row and call them the channels that the instruction wants from them; both factors agree on
// that.
#include <cooperative_groups.h>

#include "core/cuda/attend_kernels.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

namespace cg = cooperative_groups;

constexpr int kRows = 16;  // queries of a list, the instruction's rows
constexpr int kKeys = 16;  // keys that a warp takes at a time
constexpr int kWarps = 8;

__device__ __forceinline__ std::uint32_t word(const uint4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

template <int kWidth>
__global__ void __launch_bounds__(kWarps * 32) attend_decode_kernel(AttendCall<Bf16> call) {
  constexpr int kChunks = kWidth / 32;                    // 16-byte pieces of a key row per lane
  constexpr int kBlocks = kWidth / 64;                    // 64-channel blocks of a value row
  extern __shared__ __align__(16) float warp_sum_rows[];  // [kWarps][n_rows][kWidth]
  __shared__ float warp_max[kWarps][kRows];
  __shared__ float warp_total[kWarps][kRows];
  __shared__ float row_max[kRows];
  __shared__ float row_total[kRows];

  cg::cluster_group cluster = cg::this_cluster();
  const int n_splits = static_cast<int>(cluster.num_blocks());
  const int split = static_cast<int>(cluster.block_rank());
  const int owner = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const int n_tok = call.list.n_tok;
  const int n_rows = call.heads_per_list * n_tok;
  const int kv_head = owner / call.owners_per_kv_head;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int r = lane / 4;
  const int t = lane % 4;
  const std::int64_t kv_offset =
      (static_cast<std::int64_t>(batch) * call.n_kv + kv_head) * call.capacity * kWidth;
  const Bf16* const k = call.k + kv_offset;
  const Bf16* const v = call.v + kv_offset;

  // the queries as left factor, while the kernel ahead makes the lists (attend.hpp: rows are
  // there); rows that are not there are zero
  const Bf16* const q =
      call.q +
      (static_cast<std::int64_t>(batch) * call.n_q + owner * call.heads_per_list) * n_tok * kWidth;
  uint4 q_low[kChunks];
  uint4 q_high[kChunks];
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const uint4 zero = make_uint4(0, 0, 0, 0);
    q_low[j] = r < n_rows ? *reinterpret_cast<const uint4*>(q + r * kWidth + j * 32 + t * 8) : zero;
    q_high[j] = r + 8 < n_rows
                    ? *reinterpret_cast<const uint4*>(q + (r + 8) * kWidth + j * 32 + t * 8)
                    : zero;
  }

  take_turn();
  const KeyList keys(call.list, batch, owner, /*finds_end=*/false);

  float sum[kBlocks][8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};
  const int token[2] = {r % n_tok, (r + 8) % n_tok};
  const bool has_pages = call.list.log2_page > 0;  // the last one may have fewer keys: cut below
  const int n_groups = (keys.n_keys + kKeys - 1) / kKeys;
  const int last = keys.n_keys - 1;
  uint4 k_rows[2][kChunks];
  uint4 v_rows[4][kBlocks];  // keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9
  bool is_there[4];          // as has_pages says
  const auto load_keys = [&](int group) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int place = keys.position(min(group * kKeys + n * 8 + r, last));
      const Bf16* const row =
          k + static_cast<std::int64_t>(min(place, keys.n_context - 1)) * kWidth + t * 8;
#pragma unroll
      for (int j = 0; j < kChunks; ++j) k_rows[n][j] = load_once(row + j * 32);
    }
  };
  const auto load_values = [&](int group) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int place = keys.position(min(group * kKeys + i / 2 * 8 + 2 * t + i % 2, last));
      is_there[i] = place < keys.n_context;
      const Bf16* const row =
          v + static_cast<std::int64_t>(min(place, keys.n_context - 1)) * kWidth + r * 8;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) v_rows[i][b] = load_once(row + b * 64);
    }
  };
  const int group_step = n_splits * kWarps;
  int g = split * kWarps + warp;
  if (g < n_groups) {
    load_keys(g);
    load_values(g);
  }
  for (; g < n_groups; g += group_step) {
    const int first = g * kKeys;
    const bool has_next = g + group_step < n_groups;

    float score[2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int j = 0; j < kChunks; ++j) {
        multiply_add(score[n], q_low[j].x, q_high[j].x, q_low[j].y, q_high[j].y, k_rows[n][j].x,
                     k_rows[n][j].y);
        multiply_add(score[n], q_low[j].z, q_high[j].z, q_low[j].w, q_high[j].w, k_rows[n][j].z,
                     k_rows[n][j].w);
      }
    }
    if (has_next) load_keys(g + group_step);  // on their way while these become probabilities
    if (has_pages || first + kKeys > keys.n_listed) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const bool sees = keys.sees(token[i / 2], first + n * 8 + 2 * t + i % 2);
          if (!sees || !is_there[2 * n + i % 2]) score[n][i] = -INFINITY;
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float best = fmaxf(fmaxf(score[0][2 * half], score[0][2 * half + 1]),
                         fmaxf(score[1][2 * half], score[1][2 * half + 1]));
      best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 1));
      best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 2));
      best = fmaxf(best, largest[half]);
      const float origin = best == -INFINITY ? 0.0f : best * call.log2_scale;
      const float factor = exp2f(largest[half] * call.log2_scale - origin);
      largest[half] = best;
      total[half] *= factor;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          score[n][i] = exp2f(score[n][i] * call.log2_scale - origin);
          total[half] += score[n][i];
        }
      }
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          sum[b][n][2 * half] *= factor;
          sum[b][n][2 * half + 1] *= factor;
        }
      }
    }
    const std::uint32_t p0 = pack(score[0][0], score[0][1]);
    const std::uint32_t p1 = pack(score[0][2], score[0][3]);
    const std::uint32_t p2 = pack(score[1][0], score[1][1]);
    const std::uint32_t p3 = pack(score[1][2], score[1][3]);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        // channel b * 64 + r * 8 + n of two neighbouring keys in one register
        const unsigned halves = n % 2 == 0 ? 0x5410u : 0x7632u;
        const std::uint32_t b0 =
            __byte_perm(word(v_rows[0][b], n / 2), word(v_rows[1][b], n / 2), halves);
        const std::uint32_t b1 =
            __byte_perm(word(v_rows[2][b], n / 2), word(v_rows[3][b], n / 2), halves);
        multiply_add(sum[b][n], p0, p1, p2, p3, b0, b1);
      }
    }
    if (has_next) load_values(g + group_step);
  }

  // warps to shared memory; column 2 t + u of product n is channel (2 t + u) * 8 + n of its block
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] += __shfl_xor_sync(0xffffffffu, total[half], 1);
    total[half] += __shfl_xor_sync(0xffffffffu, total[half], 2);
    const int row = half * 8 + r;
    if (t == 0) {
      warp_max[warp][row] = largest[half] * call.log2_scale;
      warp_total[warp][row] = total[half];
    }
    if (row < n_rows) {
      float* const to = warp_sum_rows + (warp * n_rows + row) * kWidth;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int u = 0; u < 2; ++u) {
          float* const at = to + b * 64 + (2 * t + u) * 8;
          const int i = 2 * half + u;
          *reinterpret_cast<float4*>(at) =
              make_float4(sum[b][0][i], sum[b][1][i], sum[b][2][i], sum[b][3][i]);
          *reinterpret_cast<float4*>(at + 4) =
              make_float4(sum[b][4][i], sum[b][5][i], sum[b][6][i], sum[b][7][i]);
        }
      }
    }
  }
  __syncthreads();
  // warps of the block into the first warp's rows; each element has one thread
  for (int i = static_cast<int>(threadIdx.x); i < n_rows * kWidth; i += kWarps * 32) {
    const int row = i / kWidth;
    float best = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) best = fmaxf(best, warp_max[w][row]);
    float whole = 0.0f;
    float added = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float factor = best == -INFINITY ? 0.0f : exp2f(warp_max[w][row] - best);
      whole += factor * warp_total[w][row];
      added += factor * warp_sum_rows[w * n_rows * kWidth + i];
    }
    warp_sum_rows[i] = added;
    if (i % kWidth == 0) {
      row_max[row] = best;
      row_total[row] = whole;
    }
  }
  cluster.sync();
  const BlockParts parts{warp_sum_rows, row_max, row_total, kWidth, /*first_row=*/0, n_rows};
  merge_parts<kWidth>(call, cluster, parts, owner, batch);
  cluster.sync();  // nobody ends while its memory is read
}

}  // namespace

void attend_decode(const CallShape& shape, const AttendCall<Bf16>& call, int n_splits,
                   StreamHandle stream) {
  const int n_rows = call.heads_per_list * call.list.n_tok;
  const Blocks grid(n_splits, shape.n_kv * call.owners_per_kv_head, shape.n_batch);
  launch(stream, {grid, kWarps * 32, kWarps * n_rows * shape.d_head * 4, n_splits},
         "start the attention of a step",
         shape.d_head == 64 ? attend_decode_kernel<64> : attend_decode_kernel<128>, call);
}

}  // namespace kvscope::gpu
