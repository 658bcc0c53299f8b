#include "core/cuda/quoka_queries.cuh"

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/row_scores.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;

__device__ __forceinline__ double unit_factor(double square, double eps) {
  return 1.0 / fmax(sqrt(square), eps);
}

/// Sums of eight numbers over the warp at once: lane l gets that of number l / 4, whose bits are
/// turned around. Every number is summed in the same order.
__device__ __forceinline__ double sum_of_eight(const double (&x)[8], int& number) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  double four[4];
  double two[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const double mine = lane & 16 ? x[i + 4] : x[i];
    four[i] = mine + __shfl_xor_sync(0xffffffffu, lane & 16 ? x[i] : x[i + 4], 16);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const double mine = lane & 8 ? four[i + 2] : four[i];
    two[i] = mine + __shfl_xor_sync(0xffffffffu, lane & 8 ? four[i] : four[i + 2], 8);
  }
  double one = lane & 4 ? two[1] : two[0];
  one += __shfl_xor_sync(0xffffffffu, lane & 4 ? two[0] : two[1], 4);
  one += __shfl_xor_sync(0xffffffffu, one, 2);
  one += __shfl_xor_sync(0xffffffffu, one, 1);
  number = (lane & 16 ? 4 : 0) + (lane & 8 ? 2 : 0) + (lane & 4 ? 1 : 0);
  return one;
}

/// Norms of the call's own keys, by blocks behind those of the query heads.
struct NewKeys {
  const void* k;  // null: none
  const std::int32_t* n_past;
  std::int64_t capacity;
  float* inverse_norms;
};

template <class T, int kWidth>
__device__ __forceinline__ void note_norm(const T* k, std::int64_t row, double eps,
                                          float* inverse_norms) {
  constexpr int kEach = kWidth / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float x[kEach];
  load_row_part(k + row * kWidth + lane * kEach, x);
  double square = 0.0;
#pragma unroll
  for (int c = 0; c < kEach; ++c)
    square = fma(static_cast<double>(x[c]), static_cast<double>(x[c]), square);
  square = warp_sum(square);
  if (lane == 0) inverse_norms[row] = static_cast<float>(unit_factor(square, eps));
}

/// One block per query head, and one per KV head for its new keys. Sums are f64, so that the choice
/// is that of the f64 engine but for cosines that differ by less than its own rounding.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    choose_queries_kernel(QueryChoice choice, NewKeys keys, int n_q, int group) {
  constexpr int kEach = kWidth / 32;
  constexpr int kRun = 8;                               // rows that a warp holds at once
  extern __shared__ __align__(8) double row_numbers[];  // [2][n_tok]: inverse norm, cosine
  __shared__ double warp_mean[kWarps][kWidth];
  __shared__ double mean[kWidth];
  __shared__ double warp_square[kWidth / 32];
  __shared__ int picked[kMostVectors];
  const int n_tok = choice.n_tok;
  double* const inverse_norm = row_numbers;
  double* const cosine = row_numbers + n_tok;
  const int batch = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  if (static_cast<int>(blockIdx.x) >= n_q) {
    const int n_kv = n_q / group;
    const std::int64_t list = static_cast<std::int64_t>(batch) * n_kv + blockIdx.x - n_q;
    take_turn();
    for (int i = warp; i < n_tok; i += kWarps) {
      note_norm<T, kWidth>(static_cast<const T*>(keys.k),
                           list * keys.capacity + keys.n_past[batch] + i, choice.eps,
                           keys.inverse_norms);
    }
    return;
  }
  const int q_head = static_cast<int>(blockIdx.x);
  const std::int64_t head = static_cast<std::int64_t>(batch) * n_q + q_head;
  const T* const q = static_cast<const T*>(choice.q) + head * n_tok * kWidth + lane * kEach;

  take_turn();
  if (q_head % group == 0) {
    std::int32_t* const counts = choice.histogram + (head / group) * kBuckets;
    for (int i = thread; i < kBuckets; i += kThreads) counts[i] = 0;
  }

  float x[kRun][kEach];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kRun; ++i)
      load_row_part(q + static_cast<std::int64_t>(min(first + i, n_tok - 1)) * kWidth, x[i]);
  };
  constexpr int kRows = kRun * kWarps;  // of the block, at once
  double sum[kEach] = {};
  for (int first = warp * kRun; first < n_tok; first += kRows) {
    load(first);
    double square[kRun];
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      square[i] = 0.0;
#pragma unroll
      for (int c = 0; c < kEach; ++c) {
        const auto value = static_cast<double>(x[i][c]);
        if (first + i < n_tok) sum[c] += value;
        square[i] = fma(value, value, square[i]);
      }
    }
    int number;
    const double whole = sum_of_eight(square, number);
    if (lane % 4 == 0 && first + number < n_tok)
      inverse_norm[first + number] = unit_factor(whole, choice.eps);
  }
  const bool leaves_out = n_tok > choice.n_queries;
  if (leaves_out) {
#pragma unroll
    for (int c = 0; c < kEach; ++c) warp_mean[warp][lane * kEach + c] = sum[c];
    __syncthreads();
    if (thread < kWidth) {
      double whole = 0.0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) whole += warp_mean[w][thread];
      whole /= n_tok;
      mean[thread] = whole;
      const double square = warp_sum(whole * whole);
      if (lane == 0) warp_square[warp] = square;
    }
    __syncthreads();
    double square_of_mean = 0.0;
#pragma unroll
    for (int w = 0; w < kWidth / 32; ++w) square_of_mean += warp_square[w];
    const double mean_factor = unit_factor(square_of_mean, choice.eps);
    double own_mean[kEach];
#pragma unroll
    for (int c = 0; c < kEach; ++c) own_mean[c] = mean[lane * kEach + c];
    for (int first = warp * kRun; first < n_tok; first += kRows) {
      if (n_tok > kRows) load(first);  // else they are still there
      double dot[kRun];
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        dot[i] = 0.0;
#pragma unroll
        for (int c = 0; c < kEach; ++c)
          dot[i] = fma(static_cast<double>(x[i][c]), own_mean[c], dot[i]);
      }
      int number;
      const double whole = sum_of_eight(dot, number);
      const int row = first + number;
      if (lane % 4 == 0 && row < n_tok) {
        // NaN has no rank, and every rank has to be somebody's; the call ends with an error anyway
        const double c = whole * mean_factor * inverse_norm[row];
        cosine[row] = isnan(c) ? INFINITY : c;
      }
    }
    __syncthreads();
    // a row's rank: how many come before it; four threads share the comparisons
    for (int first = 0; first < n_tok; first += kThreads / 4) {
      const int row = first + thread / 4;
      const double own = cosine[min(row, n_tok - 1)];
      int rank = 0;
#pragma unroll 8
      for (int i = thread % 4; i < n_tok; i += 4) {
        const double other = cosine[i];
        rank += (other < own || (other == own && i < row)) ? 1 : 0;
      }
      rank += __shfl_xor_sync(0xffffffffu, rank, 1);
      rank += __shfl_xor_sync(0xffffffffu, rank, 2);
      if (row < n_tok && rank < choice.n_queries) picked[rank] = row;
    }
  } else if (thread < n_tok) {
    picked[thread] = thread;
  }
  __syncthreads();
  const int n_slots = leaves_out ? choice.n_queries : n_tok;
  if (warp < n_slots) {
    const int row = picked[warp];
    float own[kEach];
    load_row_part(q + static_cast<std::int64_t>(row) * kWidth, own);
    const double factor = inverse_norm[row] / group;
    float* const to = choice.vectors + (head * kMostVectors + warp) * kWidth + lane * kEach;
#pragma unroll
    for (int c = 0; c < kEach; ++c)
      to[c] = static_cast<float>(factor * static_cast<double>(own[c]));
    if (lane == 0) choice.picks[head * kMostVectors + warp] = row;
  }
}

template <class T, int kWidth>
__global__ void append_norms_kernel(const T* k, const std::int32_t* n_past, int n_tok, double eps,
                                    std::int64_t capacity, int n_kv, float* inverse_norms) {
  const int batch = static_cast<int>(blockIdx.z);
  const std::int64_t list = static_cast<std::int64_t>(batch) * n_kv + blockIdx.y;
  take_turn();
  const int n_warps = static_cast<int>(gridDim.x * blockDim.x) / 32;
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / 32; i < n_tok;
       i += n_warps) {
    note_norm<T, kWidth>(k, list * capacity + n_past[batch] + i, eps, inverse_norms);
  }
}

template <class T, int kWidth>
void start_choice(const CallShape& shape, const QueryChoice& choice, StreamHandle stream) {
  launch(stream, {{shape.n_q + shape.n_kv, shape.n_batch}, kThreads, 2 * 8 * choice.n_tok},
         "start QuoKA's choice of queries", choose_queries_kernel<T, kWidth>, choice,
         NewKeys{choice.k, choice.n_past, shape.capacity, choice.inverse_norms}, shape.n_q,
         shape.group());
}

template <class T, int kWidth>
void start_norms(const CallShape& shape, const void* k, const std::int32_t* n_past, int n_tok,
                 double eps, float* inverse_norms, StreamHandle stream) {
  const Blocks grid(n_tok < 1024 ? (n_tok + 7) / 8 : 128, shape.n_kv, shape.n_batch);
  launch(stream, {grid}, "start the norms of keys", append_norms_kernel<T, kWidth>,
         static_cast<const T*>(k), n_past, n_tok, eps, shape.capacity, shape.n_kv, inverse_norms);
}

}  // namespace

void choose_queries(const CallShape& shape, const QueryChoice& choice, StreamHandle stream) {
  with_types(shape, [&]<class T, int kWidth>() { start_choice<T, kWidth>(shape, choice, stream); });
}

void append_norms(const CallShape& shape, const void* k, const std::int32_t* n_past, int n_tok,
                  double eps, float* inverse_norms, StreamHandle stream) {
  with_types(shape, [&]<class T, int kWidth>() {
    start_norms<T, kWidth>(shape, k, n_past, n_tok, eps, inverse_norms, stream);
  });
}

}  // namespace kvscope::gpu
