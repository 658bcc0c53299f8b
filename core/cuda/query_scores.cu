// Tiles of 64 keys by up to 128 queries in shared memory, some of both per thread; then a block per
// query for the softmax's sums, and a thread per key for what queries give it.
#include "core/cuda/query_scores.cuh"

#include <cfloat>

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kKeys = 64;  // of a tile

/// A thread has kKeysEach keys, and kEach queries of a part that some threads share.
template <int kWidth, int kKeysEach, int kEach>
struct TileMemory {
  static constexpr int kKeyThreads = kKeys / kKeysEach;
  static constexpr int kParts = kThreads / kKeyThreads;
  static constexpr int kQueries = kParts * kEach;
  // lanes that read one channel of eight keys meet different banks
  float keys[kKeys][kWidth + 4];
  float queries[kQueries][kWidth];
};

template <class T, int kWidth, int kKeysEach, int kEach>
__global__ void __launch_bounds__(kThreads)
    query_scores_kernel(QueryScores call, int n_q, int group, std::int64_t capacity, float scale) {
  take_turn();
  using Memory = TileMemory<kWidth, kKeysEach, kEach>;
  extern __shared__ __align__(16) unsigned char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  const int kv_head = static_cast<int>(blockIdx.z);
  const int thread = static_cast<int>(threadIdx.x);
  const KeyList keys(call.list, /*batch=*/0, kv_head);
  const int first_key = static_cast<int>(blockIdx.x) * kKeys;
  if (first_key >= keys.n_keys) return;       // the whole block
  const int n_queries = group * call.n_rows;  // row by row, the heads of the group inside
  const int first_query = static_cast<int>(blockIdx.y) * Memory::kQueries;
  constexpr int kQuads = kWidth / 4;

  const T* const k = static_cast<const T*>(call.k) + kv_head * capacity * kWidth;
  for (int i = thread; i < kKeys * kQuads; i += kThreads) {
    const int key = i / kQuads;
    const int channel = i % kQuads * 4;
    const std::int64_t pos = keys.position(min(first_key + key, keys.n_keys - 1));
    float part[4];
    load_row_part(k + pos * kWidth + channel, part);
    *reinterpret_cast<float4*>(&memory.keys[key][channel]) =
        make_float4(part[0], part[1], part[2], part[3]);
  }
  const T* const q = static_cast<const T*>(call.q);
  for (int i = thread; i < Memory::kQueries * kQuads; i += kThreads) {
    const int query = min(first_query + i / kQuads, n_queries - 1);
    const int channel = i % kQuads * 4;
    const std::int64_t head = kv_head * group + query % group;
    const int row = call.first_row + query / group;
    float part[4];
    load_row_part(q + (head * call.list.n_tok + row) * kWidth + channel, part);
    *reinterpret_cast<float4*>(&memory.queries[i / kQuads][channel]) =
        make_float4(part[0], part[1], part[2], part[3]);
  }
  __syncthreads();

  const int own_key = thread % Memory::kKeyThreads;
  const int part = thread / Memory::kKeyThreads;
  float product[kKeysEach][kEach] = {};
#pragma unroll 2
  for (int c = 0; c < kWidth; c += 4) {
    float4 x[kKeysEach];
#pragma unroll
    for (int i = 0; i < kKeysEach; ++i)
      x[i] = *reinterpret_cast<const float4*>(&memory.keys[own_key + i * Memory::kKeyThreads][c]);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float4 y = *reinterpret_cast<const float4*>(&memory.queries[part * kEach + j][c]);
#pragma unroll
      for (int i = 0; i < kKeysEach; ++i) {
        product[i][j] = fmaf(x[i].x, y.x, product[i][j]);
        product[i][j] = fmaf(x[i].y, y.y, product[i][j]);
        product[i][j] = fmaf(x[i].z, y.z, product[i][j]);
        product[i][j] = fmaf(x[i].w, y.w, product[i][j]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int query = first_query + part * kEach + j;
    if (query >= n_queries) break;
    const int head = kv_head * group + query % group;
    const int row = query / group;  // counted from first_row
    float* const scores = call.scores + (static_cast<std::int64_t>(row) * n_q + head) * call.stride;
#pragma unroll
    for (int i = 0; i < kKeysEach; ++i) {
      const int key = first_key + own_key + i * Memory::kKeyThreads;
      if (key >= keys.n_keys) break;
      // NaN: the lowest
      const float score = fminf(fmaxf(product[i][j] * scale, -FLT_MAX), FLT_MAX);
      scores[key] = keys.sees(call.first_row + row, key) ? score : -INFINITY;
    }
  }
}

/// The largest number, or the sum, of all threads' ones, in the same order in every run.
template <class Join>
__device__ float join_block(float x, float* of_warp, const Join& join) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = join(x, __shfl_xor_sync(0xffffffffu, x, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  x = of_warp[0];
  for (int w = 1; w < kThreads / 32; ++w) x = join(x, of_warp[w]);
  return x;
}

__global__ void __launch_bounds__(kThreads)
    extremes_kernel(QueryScores call, int n_q, int group, float2* extremes) {
  take_turn();
  __shared__ float of_warp[kThreads / 32];
  const int head = static_cast<int>(blockIdx.x);
  const std::int64_t query = static_cast<std::int64_t>(blockIdx.y) * n_q + head;
  const KeyList keys(call.list, /*batch=*/0, head / group);
  const float* const scores = call.scores + query * call.stride;
  float largest = -INFINITY;
  for (int i = static_cast<int>(threadIdx.x); i < keys.n_keys; i += kThreads)
    largest = fmaxf(largest, scores[i]);
  largest = join_block(largest, of_warp, [](float a, float b) { return fmaxf(a, b); });
  float total = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < keys.n_keys; i += kThreads) {
    const float score = scores[i];
    if (score > -INFINITY) total += expf(score - largest);
  }
  total = join_block(total, of_warp, [](float a, float b) { return a + b; });
  if (threadIdx.x == 0) extremes[query] = make_float2(largest, total > 0.0f ? 1.0f / total : 0.0f);
}

__device__ __forceinline__ double weight_of(const QueryWeights& call, std::int64_t query, int key) {
  const float score = call.from.scores[query * call.from.stride + key];
  const float2 extremes = call.extremes[query];
  return score > -INFINITY ? expf(score - extremes.x) * extremes.y : 0.0f;
}

__global__ void __launch_bounds__(kThreads) weights_kernel(QueryWeights call, int n_q, int group) {
  take_turn();
  const int n_kv = static_cast<int>(gridDim.y);
  const int kv_head = static_cast<int>(blockIdx.y);
  const KeyList keys(call.from.list, /*batch=*/0, kv_head);
  const int key = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (key >= keys.n_keys) return;
  const int first_row = call.joins_rows ? 0 : static_cast<int>(blockIdx.z);
  const int end_row = call.joins_rows ? call.from.n_rows : first_row + 1;
  float* const out =
      call.weights +
      (call.joins_rows ? kv_head : static_cast<std::int64_t>(first_row) * n_kv + kv_head) *
          call.from.stride +
      key;
  double sum = call.adds ? *out : 0.0;
  for (int row = first_row; row < end_row; ++row) {
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head)
      sum += weight_of(call, static_cast<std::int64_t>(row) * n_q + head, key);
  }
  *out = static_cast<float>(sum);
}

int n_tiles(int n, int of) {
  return (n + of - 1) / of;
}

template <class T, int kWidth, int kKeysEach, int kEach>
void start(const CallShape& shape, const QueryScores& call, StreamHandle stream) {
  using Memory = TileMemory<kWidth, kKeysEach, kEach>;
  const Blocks grid(n_tiles(call.most_keys, kKeys),
                    n_tiles(shape.group() * call.n_rows, Memory::kQueries), shape.n_kv);
  launch(stream, {grid, kThreads, sizeof(Memory)}, "start the scores of queries",
         query_scores_kernel<T, kWidth, kKeysEach, kEach>, call, shape.n_q, shape.group(),
         shape.capacity, shape.score_scale);
}

template <class T, int kWidth>
void start(const CallShape& shape, const QueryScores& call, StreamHandle stream) {
  const int n_queries = shape.group() * call.n_rows;
  if (n_queries <= 4) return start<T, kWidth, 1, 1>(shape, call, stream);
  if (n_queries <= 16) return start<T, kWidth, 1, 4>(shape, call, stream);
  if (n_queries <= 64) return start<T, kWidth, 1, 16>(shape, call, stream);
  start<T, kWidth, 4, 8>(shape, call, stream);
}

}  // namespace

void score_queries(const CallShape& shape, const QueryScores& call, StreamHandle stream) {
  check_shape(shape);
  with_types(shape, [&]<class T, int kWidth>() { start<T, kWidth>(shape, call, stream); });
}

void weigh_keys(const CallShape& shape, const QueryWeights& call, StreamHandle stream) {
  const QueryScores& from = call.from;
  launch(stream, {{shape.n_q, from.n_rows}, kThreads}, "start the sums of softmax weights",
         extremes_kernel, from, shape.n_q, shape.group(), call.extremes);
  const Blocks grid(n_tiles(from.most_keys, kThreads), shape.n_kv,
                    call.joins_rows ? 1 : from.n_rows);
  launch(stream, {grid, kThreads}, "start the softmax weights of keys", weights_kernel, call,
         shape.n_q, shape.group());
}

}  // namespace kvscope::gpu
