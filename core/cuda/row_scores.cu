#include "core/cuda/row_scores.cuh"

#include <string>

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/score_vectors.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__device__ __forceinline__ int rows_of(const RowScores& call, int batch) {
  return (call.n_past[batch] + call.n_more + call.page_size - 1) / call.page_size;
}

/// Writes one score; counts it where there is a histogram.
__device__ __forceinline__ void put_score(const RowScores& call, int list, int row, float score,
                                          int* counts) {
  if (call.factors != nullptr)
    score *= __ldg(call.factors + static_cast<std::int64_t>(list) * call.capacity + row);
  call.scores[static_cast<std::int64_t>(list) * call.stride + row] = score;
  if (counts != nullptr) atomicAdd(counts + bucket_of_cosine(score), 1);
}

/// bf16 rows, which every warp copies to a ring of its own in shared memory.
template <int kWidth, int kTiles>
struct RowRing {
  static constexpr int kRows = kTiles * 16;  // of a stage
  static constexpr int kStageBytes = kRows * kWidth * 2;
  static constexpr int kStages = 3 * 8192 / kStageBytes;  // 24 KiB per warp are on their way
  static constexpr int kBytes = kWarps * kStages * kStageBytes;
};

/// 16 rows per instruction as left factor (multiply_by_vectors).
template <int kWidth, int kTiles, int kVectorTiles>
__global__ void __launch_bounds__(kThreads, 1) score_rows_kernel(RowScores call) {
  using Ring = RowRing<kWidth, kTiles>;
  constexpr int kChunks = kWidth / 32;
  constexpr int kSteps = kWidth / 16;
  constexpr int kParts = kWidth / 8;  // 16-byte chunks of a row
  constexpr int kRows = Ring::kRows;
  constexpr int kStages = Ring::kStages;
  extern __shared__ __align__(128) unsigned char rings[];
  __shared__ uint4 right[kTerms][kSteps][32];
  __shared__ int counts[kBuckets];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const int list = batch * call.n_kv + kv_head;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int r = lane / 4;
  const int t = lane % 4;
  const bool is_counted = call.histogram != nullptr;
  const int n_rows = rows_of(call, batch);
  const Bf16* const rows = static_cast<const Bf16*>(call.rows) +
                           static_cast<std::int64_t>(list) * call.capacity * kWidth;
  const std::uint32_t ring =
      shared_address(rings) + static_cast<std::uint32_t>(warp * kStages * Ring::kStageBytes);
  const int first_tile = static_cast<int>(blockIdx.x) * kWarps + warp;
  const int tile_step = static_cast<int>(gridDim.x) * kWarps;
  const int n_all = (n_rows + kRows - 1) / kRows;
  const int n_tiles = first_tile < n_all ? (n_all - 1 - first_tile) / tile_step + 1 : 0;
  // chunk c of a row: odd rows have halves of 64 bytes exchanged, so that reads meet all banks
  const auto copy_tile = [&](int i) {
    const int first = (first_tile + i * tile_step) * kRows;
    const std::uint32_t to = ring + static_cast<std::uint32_t>(i % kStages * Ring::kStageBytes);
#pragma unroll
    for (int j = 0; j < kRows * kParts / 32; ++j) {
      const int row = (j * 32 + lane) / kParts;
      const int part = (j * 32 + lane) % kParts;
      copy_16(to + static_cast<std::uint32_t>((row * kParts + (part ^ (row % 2 * 4))) * 16),
              rows + static_cast<std::int64_t>(min(first + row, n_rows - 1)) * kWidth + part * 8);
    }
  };
  int n_begun = 0;
  if (call.rows_are_there) {  // on their way while the kernel ahead makes the vectors
    const int n_settled = call.n_past[batch] / call.page_size;
    while (n_begun < min(kStages, n_tiles) &&
           min((first_tile + n_begun * tile_step) * kRows + kRows, n_rows) <= n_settled) {
      copy_tile(n_begun);
      end_copy_group();
      ++n_begun;
    }
  }
  if (is_counted) {
    for (int i = thread; i < kBuckets; i += kThreads) counts[i] = 0;
  }
  take_turn();
  for (; n_begun < kStages; ++n_begun) {
    if (n_begun < n_tiles) copy_tile(n_begun);
    end_copy_group();
  }

  lay_out_vectors<kWidth, kVectorTiles, kThreads>(call, list, thread, right);
  __syncthreads();

  for (int tile = 0; tile < n_tiles; ++tile) {
    const int first = (first_tile + tile * tile_step) * kRows;
    // lane t of a quad writes row t of its (up to four) rows
    const int own_row = first + t * 8 + r;
    const bool has_row = t < 2 * kTiles && own_row < n_rows;
    float row_factor = 1.0f;
    if (call.factors != nullptr && has_row)
      row_factor = __ldg(call.factors + static_cast<std::int64_t>(list) * call.capacity + own_row);
    wait_for_copies<kStages - 1>();
    __syncwarp();
    uint4 low[kTiles][kChunks];
    uint4 high[kTiles][kChunks];
    const unsigned char* const stage =
        rings + (warp * kStages + tile % kStages) * Ring::kStageBytes;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int j = 0; j < kChunks; ++j) {
        const int part = (j * 4 + t) ^ (r % 2 * 4);
        low[m][j] = *reinterpret_cast<const uint4*>(stage + ((m * 16 + r) * kParts + part) * 16);
        high[m][j] =
            *reinterpret_cast<const uint4*>(stage + ((m * 16 + 8 + r) * kParts + part) * 16);
      }
    }
    __syncwarp();
    if (tile + kStages < n_tiles) copy_tile(tile + kStages);
    end_copy_group();

    float product[kTiles][kVectorTiles][4] = {};
    multiply_by_vectors(product, low, high, right, lane);
    if (call.reduce == Reduce::largest) {
      float own_best = -INFINITY;
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float x = -INFINITY;
#pragma unroll
          for (int n = 0; n < kVectorTiles; ++n) {
#pragma unroll
            for (int u = 0; u < 2; ++u) {
              if (n * 8 + 2 * t + u < call.n_vectors) x = fmaxf(x, product[m][n][2 * half + u]);
            }
          }
          x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
          x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
          if (t == 2 * m + half) own_best = x;
        }
      }
      if (has_row) {
        const float score = own_best * row_factor;
        call.scores[static_cast<std::int64_t>(list) * call.stride + own_row] = score;
        if (is_counted) atomicAdd(counts + bucket_of_cosine(score), 1);
      }
    } else {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int n = 0; n < kVectorTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int row = first + m * 16 + i / 2 * 8 + r;
            const int vector = n * 8 + 2 * t + i % 2;
            if (row < n_rows && vector < call.n_vectors)
              put_score(call, list * call.n_vectors + vector, row, product[m][n][i], nullptr);
          }
        }
      }
    }
  }
  wait_for_copies<0>();
  if (is_counted) {
    __syncthreads();
    std::int32_t* const to = call.histogram + static_cast<std::int64_t>(list) * kBuckets;
    for (int i = thread; i < kBuckets; i += kThreads) {
      if (counts[i] > 0) atomicAdd(to + i, counts[i]);
    }
  }
}

/// f32 rows, plain arithmetic: 64 rows in shared memory, four threads per row with four vectors
/// each.
template <int kWidth>
struct PlainMemory {
  static constexpr int kRows = 64;
  static constexpr int kStride = kWidth + 4;
  float rows[kRows][kStride];
  float vectors[kMostVectors][kWidth];
  float best[4][kRows];
  int counts[kBuckets];
};

template <int kWidth>
__global__ void __launch_bounds__(kThreads) score_rows_plain_kernel(RowScores call) {
  using Memory = PlainMemory<kWidth>;
  constexpr int kEach = kMostVectors / 4;
  extern __shared__ __align__(16) unsigned char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  const int batch = static_cast<int>(blockIdx.z);
  const int list = batch * call.n_kv + static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const bool is_counted = call.histogram != nullptr;
  for (int i = thread; i < kBuckets; i += kThreads) memory.counts[i] = 0;
  take_turn();
  for (int i = thread; i < kMostVectors * (kWidth / 4); i += kThreads) {
    const int vector = i / (kWidth / 4);
    const int channel = i % (kWidth / 4) * 4;
    *reinterpret_cast<float4*>(&memory.vectors[vector][channel]) =
        vector_quad<float>(call, list, vector, channel);
  }
  const int n_rows = rows_of(call, batch);
  const float* const rows = static_cast<const float*>(call.rows) +
                            static_cast<std::int64_t>(list) * call.capacity * kWidth;
  const int own_row = thread % Memory::kRows;
  const int quarter = thread / Memory::kRows;
  for (int first = static_cast<int>(blockIdx.x) * Memory::kRows; first < n_rows;
       first += static_cast<int>(gridDim.x) * Memory::kRows) {
    __syncthreads();
    for (int i = thread; i < Memory::kRows * (kWidth / 4); i += kThreads) {
      const int row = min(first + i / (kWidth / 4), n_rows - 1);
      const int channel = i % (kWidth / 4) * 4;
      *reinterpret_cast<float4*>(&memory.rows[i / (kWidth / 4)][channel]) =
          *reinterpret_cast<const float4*>(rows + static_cast<std::int64_t>(row) * kWidth +
                                           channel);
    }
    __syncthreads();
    float product[kEach] = {};
    for (int c = 0; c < kWidth; c += 4) {
      const float4 x = *reinterpret_cast<const float4*>(&memory.rows[own_row][c]);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const float4 y = *reinterpret_cast<const float4*>(&memory.vectors[quarter * kEach + i][c]);
        product[i] = fmaf(x.x, y.x, product[i]);
        product[i] = fmaf(x.y, y.y, product[i]);
        product[i] = fmaf(x.z, y.z, product[i]);
        product[i] = fmaf(x.w, y.w, product[i]);
      }
    }
    const int row = first + own_row;
    if (call.reduce == Reduce::each) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int vector = quarter * kEach + i;
        if (row < n_rows && vector < call.n_vectors)
          put_score(call, list * call.n_vectors + vector, row, product[i], nullptr);
      }
      continue;
    }
    float best = -INFINITY;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (quarter * kEach + i < call.n_vectors) best = fmaxf(best, product[i]);
    }
    memory.best[quarter][own_row] = best;
    __syncthreads();
    if (quarter == 0 && row < n_rows) {
      for (int i = 1; i < 4; ++i) best = fmaxf(best, memory.best[i][own_row]);
      put_score(call, list, row, best, is_counted ? memory.counts : nullptr);
    }
  }
  if (is_counted) {
    __syncthreads();
    std::int32_t* const to = call.histogram + static_cast<std::int64_t>(list) * kBuckets;
    for (int i = thread; i < kBuckets; i += kThreads) {
      if (memory.counts[i] > 0) atomicAdd(to + i, memory.counts[i]);
    }
  }
}

template <int kWidth, int kTiles>
void start(const RowScores& call, StreamHandle stream) {
  const char* const what = "start the scores of rows";
  const int n_lists = call.n_kv * call.n_batch;
  constexpr int kMultiprocessors = 132;  // of an H100 or H200
  if (call.dtype == DType::f32) {
    const Blocks grid((2 * kMultiprocessors + n_lists - 1) / n_lists, call.n_kv, call.n_batch);
    launch(stream, {grid, kThreads, sizeof(PlainMemory<kWidth>)}, what,
           score_rows_plain_kernel<kWidth>, call);
    return;
  }
  const Blocks grid(n_lists < kMultiprocessors ? kMultiprocessors / n_lists : 1, call.n_kv,
                    call.n_batch);
  launch(stream, {grid, kThreads, RowRing<kWidth, kTiles>::kBytes}, what,
         call.n_vectors <= 8 ? score_rows_kernel<kWidth, kTiles, 1>
                             : score_rows_kernel<kWidth, kTiles, 2>,
         call);
}

}  // namespace

void score_rows(const RowScores& call, StreamHandle stream) {
  switch (call.width) {
    case 64:
      return start<64, 2>(call, stream);
    case 128:
      return start<128, 2>(call, stream);
    case 256:
      return start<256, 1>(call, stream);
    default:
      break;
  }
  throw ShapeError("scores on the GPU: expected rows of 64, 128 or 256 numbers, found " +
                   std::to_string(call.width));
}

}  // namespace kvscope::gpu
