// Attention in plain f32 arithmetic, for f32 rows and as a second opinion: 32 queries of a list
// by 32 keys at a time, keys and values in shared memory.
// How keys are divided among blocks: row_segments.cuh.
#include "core/cuda/attend_kernels.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/row_segments.cuh"

namespace kvscope::gpu {

namespace {

using namespace by_rows;

template <class T, int kWidth, int kMost>
__global__ void __launch_bounds__(kThreads, kBlocksAtATime<kWidth>)
    attend_rows_kernel(AttendCall<T> call) {
  using Channels = LaneChannels<kWidth>;
  constexpr int kEach = Channels::kEach;
  extern __shared__ __align__(16) unsigned char bytes[];
  RowMemory<kWidth>& memory = *reinterpret_cast<RowMemory<kWidth>*>(bytes);
  auto cluster = cooperative_groups::this_cluster();
  const int n_splits = static_cast<int>(cluster.num_blocks());
  const int split = static_cast<int>(cluster.block_rank());
  const int owner = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const int n_tok = call.list.n_tok;
  const int n_rows = call.heads_per_list * n_tok;
  const int first_row = static_cast<int>(blockIdx.x) / n_splits * kRows;
  const int last_row = min(first_row + kRows, n_rows) - 1;
  const int kv_head = owner / call.owners_per_kv_head;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t first_of_list =
      (static_cast<std::int64_t>(batch) * call.n_q + owner * call.heads_per_list) * n_tok;
  const std::int64_t kv_offset =
      (static_cast<std::int64_t>(batch) * call.n_kv + kv_head) * call.capacity * kWidth;

  take_turn();
  const KeyList keys(call.list, batch, owner);
  const bool is_one_head = first_row / n_tok == last_row / n_tok;
  const Segments segments(call, keys, is_one_head ? first_row % n_tok : 0,
                          is_one_head ? last_row % n_tok : n_tok - 1);

  float part[kEach];
  for (int i = 0; i < kRowsPerWarp; ++i) {
    const int row = warp * kRowsPerWarp + i;
    Channels::load(call.q + (first_of_list + min(first_row + row, last_row)) * kWidth, lane, part);
    Channels::store(memory.q[row], lane, part);
  }

  // Threads of the whole cluster divide rows and channels among themselves when they fold.
  const int threads_per_row = kThreads / kRows * n_splits;
  const int thread = split * kThreads + static_cast<int>(threadIdx.x);
  const int folded_row = thread / threads_per_row;
  const int first_quad = thread % threads_per_row;
  Folded<kWidth> folded;

  for (int round = 0; round < segments.count; round += n_splits) {
    float sum[kRowsPerWarp][kEach] = {};
    float largest[kRowsPerWarp];
    float total[kRowsPerWarp] = {};
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) largest[i] = -INFINITY;
    const int begin = round + split < segments.count ? segments.first_key(round + split) : 0;
    const int end = round + split < segments.count ? min(begin + kSegment, segments.end) : 0;
    for (int first = begin; first < end; first += kKeys) {
      __syncthreads();
      for (int key = warp; key < kKeys; key += kWarps) {
        const int position = keys.position(min(first + key, keys.n_keys - 1));
        const std::int64_t at = kv_offset + static_cast<std::int64_t>(position) * kWidth;
        Channels::load(call.k + at, lane, part);
        Channels::store(memory.k[key], lane, part);
        Channels::load(call.v + at, lane, part);
        Channels::store(memory.v[key], lane, part);
      }
      __syncthreads();
      float score[kRowsPerWarp] = {};
#pragma unroll 4
      for (int c = 0; c < kWidth; c += 4) {
        const float4 x = *reinterpret_cast<const float4*>(&memory.k[lane][c]);
#pragma unroll
        for (int i = 0; i < kRowsPerWarp; ++i) {
          const float4 y = *reinterpret_cast<const float4*>(&memory.q[warp * kRowsPerWarp + i][c]);
          score[i] = fmaf(x.x, y.x, score[i]);
          score[i] = fmaf(x.y, y.y, score[i]);
          score[i] = fmaf(x.z, y.z, score[i]);
          score[i] = fmaf(x.w, y.w, score[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kRowsPerWarp; ++i) {
        const int row = warp * kRowsPerWarp + i;
        const int token = (first_row + row) % n_tok;
        // Scaled before anything is compared: a tile of which a row sees nothing then changes no
        // bit of its sums (the factor is exactly one), however many of them its call has.
        score[i] = call.rule.score_cap > 0.0f
                       ? call.log2_cap * tanhf(score[i] * call.scale_over_cap)
                       : score[i] * call.log2_scale;
        if (!sees(call, keys, token, first + lane)) score[i] = -INFINITY;
        float best = score[i];
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
          best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, step));
        best = fmaxf(best, largest[i]);
        const float origin = best == -INFINITY ? 0.0f : best;
        const float factor = exp2f(largest[i] - origin);
        largest[i] = best;
        score[i] = exp2f(score[i] - origin);
        memory.weight[row][lane] = score[i];
        total[i] = __fmaf_rn(total[i], factor, score[i]);  // of this lane's keys
#pragma unroll
        for (int c = 0; c < kEach; ++c) sum[i][c] *= factor;
      }
      __syncwarp();
#pragma unroll 2
      for (int key = 0; key < kKeys; key += 4) {
        float4 weight[kRowsPerWarp];
#pragma unroll
        for (int i = 0; i < kRowsPerWarp; ++i)
          weight[i] =
              *reinterpret_cast<const float4*>(&memory.weight[warp * kRowsPerWarp + i][key]);
#pragma unroll
        for (int u = 0; u < 4; ++u) {
          Channels::load(memory.v[key + u], lane, part);
#pragma unroll
          for (int i = 0; i < kRowsPerWarp; ++i) {
            const float w = u == 0   ? weight[i].x
                            : u == 1 ? weight[i].y
                            : u == 2 ? weight[i].z
                                     : weight[i].w;
#pragma unroll
            for (int c = 0; c < kEach; ++c) sum[i][c] = fmaf(w, part[c], sum[i][c]);
          }
        }
      }
    }
    __syncthreads();  // no warp reads keys any more
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      const int row = warp * kRowsPerWarp + i;
      const float whole = warp_sum(total[i]);
      Channels::store(memory.k[row], lane, sum[i]);
      if (lane == 0) {
        memory.largest[row] = largest[i];
        memory.total[row] = whole;
      }
    }
    cluster.sync();
    folded.template add<kMost>(cluster, memory, folded_row, first_quad, threads_per_row);
    cluster.sync();  // nobody overwrites, or ends, while its memory is read
  }

  if (first_row + folded_row > last_row) return;
  constexpr float kLn2 = 0.69314718055994531f;
  constexpr float kLog2E = 1.4426950408889634f;
  const std::int64_t row = first_of_list + first_row + folded_row;
  float factor = 1.0f;
  if (call.rule.sink_logits != nullptr && folded.largest > -INFINITY) {
    const int head = owner * call.heads_per_list + (first_row + folded_row) / n_tok;
    const float sink = call.rule.sink_logits[head] * kLog2E;
    const float best = fmaxf(folded.largest, sink);
    factor = exp2f(folded.largest - best);
    folded.total = __fmaf_rn(folded.total, factor, exp2f(sink - best));
    folded.largest = best;
  }
  const float share = folded.total > 0.0f ? factor / folded.total : 0.0f;
#pragma unroll
  for (int i = 0; i < Folded<kWidth>::kQuads; ++i) {
    const int quad = first_quad + i * threads_per_row;
    if (quad >= kWidth / 4) break;
    const float4 x = folded.sum[i];
    store_four(call.out + row * kWidth + quad * 4, x.x * share, x.y * share, x.z * share,
               x.w * share);
  }
  if (first_quad == 0) {
    // NaN stays NaN, which is reported; 0 is a query without keys
    call.lse[row] =
        folded.total == 0.0f ? -INFINITY : (folded.largest + log2f(folded.total)) * kLn2;
  }
}

template <class T, int kWidth>
void start(const CallShape& shape, const AttendCall<T>& call, int n_splits, StreamHandle stream) {
  const int n_rows = call.heads_per_list * call.list.n_tok;
  const int n_blocks = (n_rows + kRows - 1) / kRows;
  const int n_owners = shape.n_kv * call.owners_per_kv_head;
  if (n_splits == 0) {
    // A block that has no segment only waits for the others.
    const std::int64_t most_keys =
        call.list.lists.items == nullptr
            ? shape.capacity
            : std::int64_t{call.list.lists.stride} * call.list.lists.page_size + call.list.n_tok;
    constexpr int kBlocksOfDevice = 132 * kBlocksAtATime<kWidth>;
    n_splits = 1;
    while (n_splits < kMostSplits && n_splits * kSegment < most_keys &&
           std::int64_t{n_blocks} * n_owners * shape.n_batch * n_splits * 2 <= kBlocksOfDevice)
      n_splits *= 2;
  }
  launch(
      stream,
      {{n_blocks * n_splits, n_owners, shape.n_batch},
       kThreads,
       sizeof(RowMemory<kWidth>),
       n_splits},
      "start attention in f32",
      n_splits == 1 ? attend_rows_kernel<T, kWidth, 1> : attend_rows_kernel<T, kWidth, kMostSplits>,
      call);
}

}  // namespace

template <class T>
void attend_rows(const CallShape& shape, const AttendCall<T>& call, int n_splits,
                 StreamHandle stream) {
  if (shape.d_head == 64) {
    start<T, 64>(shape, call, n_splits, stream);
  } else if (shape.d_head == 128) {
    start<T, 128>(shape, call, n_splits, stream);
  } else {
    start<T, 256>(shape, call, n_splits, stream);
  }
}

template void attend_rows<float>(const CallShape&, const AttendCall<float>&, int, StreamHandle);
template void attend_rows<Bf16>(const CallShape&, const AttendCall<Bf16>&, int, StreamHandle);

}  // namespace kvscope::gpu
