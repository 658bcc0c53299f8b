// Attention in plain f32 arithmetic, for f32 rows and as a second opinion: 32 queries of a list
// by 32 keys at a time, keys and values in shared memory.
#include "core/cuda/attend_kernels.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kWarps = 8;
constexpr int kRowsPerWarp = 4;
constexpr int kRows = kWarps * kRowsPerWarp;
constexpr int kKeys = 32;  // one per lane

template <int kWidth>
struct RowMemory {
  static constexpr int kKeyStride =
      kWidth + 4;  // lanes that read one channel of 32 keys meet all banks
  float q[kRows][kWidth];
  float k[kKeys][kKeyStride];
  float v[kKeys][kWidth];
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kWarps * 32) attend_rows_kernel(AttendCall<T> call) {
  constexpr int kEach = kWidth / 32;  // channels of a lane
  extern __shared__ __align__(16) unsigned char bytes[];
  RowMemory<kWidth>& memory = *reinterpret_cast<RowMemory<kWidth>*>(bytes);
  const int owner = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const int n_tok = call.list.n_tok;
  const int n_rows = call.heads_per_list * n_tok;
  const int first_row = static_cast<int>(blockIdx.x) * kRows;
  const int kv_head = owner / call.owners_per_kv_head;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t first_of_list =
      (static_cast<std::int64_t>(batch) * call.n_q + owner * call.heads_per_list) * n_tok;
  const std::int64_t kv_offset =
      (static_cast<std::int64_t>(batch) * call.n_kv + kv_head) * call.capacity * kWidth;

  wait_for_earlier_kernels();
  let_next_kernel_begin();
  const KeyList keys(call.list, batch, owner);

  float part[kEach];
  for (int i = 0; i < kRowsPerWarp; ++i) {
    const int row = warp * kRowsPerWarp + i;
    const std::int64_t source = first_of_list + min(first_row + row, n_rows - 1);
    load_row_part(call.q + source * kWidth + lane * kEach, part);
#pragma unroll
    for (int c = 0; c < kEach; ++c) memory.q[row][lane * kEach + c] = part[c];
  }

  float sum[kRowsPerWarp][kEach] = {};
  float largest[kRowsPerWarp];
  float total[kRowsPerWarp] = {};
#pragma unroll
  for (int i = 0; i < kRowsPerWarp; ++i) largest[i] = -INFINITY;
  for (int first = 0; first < keys.n_keys; first += kKeys) {
    __syncthreads();
    for (int key = warp; key < kKeys; key += kWarps) {
      const std::int64_t at =
          kv_offset +
          static_cast<std::int64_t>(keys.position(min(first + key, keys.n_keys - 1))) * kWidth +
          lane * kEach;
      load_row_part(call.k + at, part);
#pragma unroll
      for (int c = 0; c < kEach; ++c) memory.k[key][lane * kEach + c] = part[c];
      load_row_part(call.v + at, part);
#pragma unroll
      for (int c = 0; c < kEach; ++c) memory.v[key][lane * kEach + c] = part[c];
    }
    __syncthreads();
    float score[kRowsPerWarp] = {};
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
      const int token = (first_row + warp * kRowsPerWarp + i) % n_tok;
      // Scaled before anything is compared: a tile of which a row sees nothing then changes no bit
      // of its sums (the factor is exactly one), however many of them its call has.
      score[i] = keys.sees(token, first + lane) ? score[i] * call.log2_scale : -INFINITY;
      float best = score[i];
#pragma unroll
      for (int step = 16; step > 0; step /= 2)
        best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, step));
      best = fmaxf(best, largest[i]);
      const float origin = best == -INFINITY ? 0.0f : best;
      const float factor = exp2f(largest[i] - origin);
      largest[i] = best;
      score[i] = exp2f(score[i] - origin);
      total[i] = total[i] * factor + score[i];  // of this lane's keys
#pragma unroll
      for (int c = 0; c < kEach; ++c) sum[i][c] *= factor;
    }
    for (int key = 0; key < kKeys; ++key) {
#pragma unroll
      for (int c = 0; c < kEach; ++c) part[c] = memory.v[key][lane * kEach + c];
#pragma unroll
      for (int i = 0; i < kRowsPerWarp; ++i) {
        const float prob = __shfl_sync(0xffffffffu, score[i], key);
#pragma unroll
        for (int c = 0; c < kEach; ++c) sum[i][c] = fmaf(prob, part[c], sum[i][c]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRowsPerWarp; ++i) {
    const float whole = warp_sum(total[i]);
    const int row = first_row + warp * kRowsPerWarp + i;
    if (row >= n_rows) continue;
    const float share = whole > 0.0f ? 1.0f / whole : 0.0f;
#pragma unroll
    for (int c = 0; c < kEach; ++c)
      store_element(call.out + (first_of_list + row) * kWidth + lane * kEach + c,
                    sum[i][c] * share);
    if (lane == 0) {
      constexpr float kLn2 = 0.69314718055994531f;
      // NaN stays NaN, which is reported; 0 is a query without keys
      call.lse[first_of_list + row] =
          whole == 0.0f ? -INFINITY : (largest[i] + log2f(whole)) * kLn2;
    }
  }
}

template <class T, int kWidth>
void start(const CallShape& shape, const AttendCall<T>& call, StreamHandle stream) {
  const int n_rows = call.heads_per_list * call.list.n_tok;
  Launch how;
  how.grid = dim3(static_cast<unsigned>((n_rows + kRows - 1) / kRows),
                  static_cast<unsigned>(shape.n_kv * call.owners_per_kv_head),
                  static_cast<unsigned>(shape.n_batch));
  how.threads = kWarps * 32;
  how.shared_bytes = static_cast<int>(sizeof(RowMemory<kWidth>));
  how.overlaps = true;
  launch(stream, how, "start attention in f32", attend_rows_kernel<T, kWidth>, call);
}

}  // namespace

template <class T>
void attend_rows(const CallShape& shape, const AttendCall<T>& call, StreamHandle stream) {
  if (shape.d_head == 64) {
    start<T, 64>(shape, call, stream);
  } else {
    start<T, 128>(shape, call, stream);
  }
}

template void attend_rows<float>(const CallShape&, const AttendCall<float>&, StreamHandle);
template void attend_rows<Bf16>(const CallShape&, const AttendCall<Bf16>&, StreamHandle);

}  // namespace kvscope::gpu
