#include "core/cuda/sparq.hpp"

#include <algorithm>
#include <string>

#include "core/cuda/launch.cuh"
#include "core/cuda/listed_keys.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/row_scores.cuh"
#include "core/cuda/top_lists.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kWarps = 8;

/// The sum of all warps' numbers per channel, in the order of the warps. own: of this lane's
/// channels.
template <int kWidth>
__device__ void add_warps(double (&of_warp)[kWarps][kWidth], const double (&own)[kWidth / 32],
                          double (&sum)[kWidth]) {
  constexpr int kEach = kWidth / 32;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kEach; ++i) of_warp[thread / 32][thread % 32 * kEach + i] = own[i];
  __syncthreads();
  for (int c = thread; c < kWidth; c += kWarps * 32) {
    double whole = 0.0;
    for (int w = 0; w < kWarps; ++w) whole += of_warp[w][c];
    sum[c] = whole;
  }
  __syncthreads();
}

/// One block per KV head: the channels of largest sum of |q|, then the queries in these channels,
/// each divided by its tau. vectors [n_kv, kMostVectors, kWidth]: the mean over rows and heads, and
/// with one row and place for them, each head's behind it.
template <class T, int kWidth>
__global__ void __launch_bounds__(kWarps * 32)
    mean_query_kernel(const T* q, int n_rows, int n_tok, int n_channels, float* vectors) {
  take_turn();
  constexpr int kEach = kWidth / 32;
  __shared__ double of_warp[kWarps][kWidth];
  __shared__ double sum[kWidth];
  __shared__ int is_chosen[kWidth];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int first = thread % 32 * kEach;  // channel of this lane
  const int kv_head = static_cast<int>(blockIdx.x);
  const T* const rows = q + static_cast<std::int64_t>(kv_head) * n_rows * kWidth;
  float* const out = vectors + static_cast<std::int64_t>(kv_head) * kMostVectors * kWidth;

  double own[kEach] = {};
  float x[kEach];
  for (int row = warp; row < n_rows; row += kWarps) {
    load_row_part(rows + static_cast<std::int64_t>(row) * kWidth + first, x);
#pragma unroll
    for (int i = 0; i < kEach; ++i) own[i] += fabs(static_cast<double>(x[i]));
  }
  add_warps<kWidth>(of_warp, own, sum);
  for (int c = thread; c < kWidth; c += kWarps * 32) {
    int n_better = 0;
    for (int other = 0; other < kWidth; ++other)
      n_better += sum[other] > sum[c] || (sum[other] == sum[c] && other < c) ? 1 : 0;
    is_chosen[c] = n_better < n_channels ? 1 : 0;
  }
  __syncthreads();

#pragma unroll
  for (int i = 0; i < kEach; ++i) own[i] = 0.0;
  for (int row = warp; row < n_rows; row += kWarps) {
    load_row_part(rows + static_cast<std::int64_t>(row) * kWidth + first, x);
    double all = 0.0;
    double kept = 0.0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const double size = fabs(static_cast<double>(x[i]));
      all += size;
      kept += is_chosen[first + i] != 0 ? size : 0.0;
    }
    all = warp_sum(all);
    kept = warp_sum(kept);
    const double tau = kept > 0.0 ? sqrt(kWidth * kept / all) : sqrt(static_cast<double>(kWidth));
    const double factor = 1.0 / (tau * n_tok);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const double part = is_chosen[first + i] != 0 ? factor * static_cast<double>(x[i]) : 0.0;
      own[i] += part;
      if (n_tok == 1 && n_rows < kMostVectors)
        out[(1 + row) * kWidth + first + i] = static_cast<float>(part);
    }
  }
  __syncthreads();  // sum was read
  add_warps<kWidth>(of_warp, own, sum);
  const double n_heads = static_cast<double>(n_rows) / n_tok;
  for (int c = thread; c < kWidth; c += kWarps * 32) out[c] = static_cast<float>(sum[c] / n_heads);
}

template <class T>
void start(const CallShape& shape, const DeviceRows& rows, int n_channels, float* vectors,
           StreamHandle stream) {
  Launch how;
  how.grid = dim3(static_cast<unsigned>(shape.n_kv));
  how.threads = kWarps * 32;
  launch(stream, how, "start the channels of queries",
         shape.d_head == 64 ? mean_query_kernel<T, 64> : mean_query_kernel<T, 128>,
         static_cast<const T*>(rows.q), shape.group() * rows.n_tok, rows.n_tok, n_channels,
         vectors);
}

}  // namespace

void Sparq::choose(const CallShape& shape, const SparqOptions& options, const DeviceRows& rows,
                   int n_past, StreamHandle stream) {
  constexpr const char* kUse = "SparQ's scores";
  const auto refuse = [](const std::string& expected, long long found) {
    throw ShapeError("SparQ on the GPU: expected " + expected + ", found " + std::to_string(found));
  };
  check_shape(shape);
  if (shape.n_batch != 1) refuse("one sequence", shape.n_batch);
  if (options.budget < 1) refuse("a budget of at least one key", options.budget);
  if (options.n_channels < 1 || options.n_channels > shape.d_head)
    refuse("1 to " + std::to_string(shape.d_head) + " channels", options.n_channels);
  if (rows.n_tok < 1) refuse("at least one query", rows.n_tok);
  const std::int64_t n_kv = shape.n_kv;
  if (options.finds_shares && (rows.n_tok != 1 || shape.group() >= kMostVectors))
    refuse("one query and at most 15 heads per KV head for shares", shape.group());
  const int n_vectors = options.finds_shares ? 1 + shape.group() : 1;
  const std::int64_t stride = (std::int64_t{n_past} + 1 + 3) / 4 * 4;
  auto* const vectors = vectors_.room<float>(n_kv * kMostVectors * shape.d_head, kUse);
  if (shape.dtype == Dtype::bf16) {
    start<Bf16>(shape, rows, options.n_channels, vectors, stream);
  } else {
    start<float>(shape, rows, options.n_channels, vectors, stream);
  }

  RowScores scoring;
  scoring.rows = rows.k;
  scoring.capacity = shape.capacity;
  scoring.dtype = shape.dtype;
  scoring.width = shape.d_head;
  scoring.n_kv = shape.n_kv;
  scoring.vectors = vectors;
  scoring.n_vectors = n_vectors;
  scoring.reduce = Reduce::each;
  scoring.n_past = rows.n_past;
  scoring.rows_are_there = true;
  scoring.n_more = options.finds_shares ? 1 : 0;  // the query's own key
  scoring.scores = scores_.room<float>(n_kv * n_vectors * stride, kUse);
  scoring.stride = stride;
  score_rows(scoring, stream);

  const int n_latest = std::min(options.n_latest, n_past);
  const std::int32_t n_competing = n_past - n_latest;
  lists_ = {};
  lists_.n_owners = shape.n_kv;
  lists_.stride = std::clamp(n_competing, 1, options.budget);
  TopLists top;
  top.scores = scoring.scores;
  top.stride = n_vectors * stride;
  top.n_owners = shape.n_kv;
  top.n_past = n_latest == 0 ? rows.n_past : competing_.upload(&n_competing, 1, kUse, stream);
  top.budget = options.budget - n_latest;
  top.items = items_.room<std::int32_t>(n_kv * lists_.stride, kUse);
  top.counts = counts_.room<std::int32_t>(n_kv, kUse);
  top.item_stride = lists_.stride;
  make_top_lists(top, stream);
  lists_.items = top.items;
  lists_.counts = top.counts;
  if (n_latest > 0) {
    const int key_stride = std::min(n_past, options.budget);
    auto* const keys = keys_.room<std::int32_t>(n_kv * key_stride, kUse);
    auto* const key_counts = key_counts_.room<std::int32_t>(n_kv, kUse);
    list_keys(lists_, /*n_batch=*/1, rows.n_past, n_latest, keys, key_counts, key_stride, stream);
    lists_ = {keys, key_counts, key_stride, shape.n_kv, /*page_size=*/1};
  }
  if (options.finds_shares) find_shares(shape, scoring.scores, stride, rows.n_past, stream);
}

}  // namespace kvscope::gpu
