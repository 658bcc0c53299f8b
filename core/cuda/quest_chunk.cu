// Quest's choice for the rows of a chunk or a verification: one list per KV head of pages that lie
// before the call, ranked by the sum of all rows' and heads' bounds, which is one bound of the
// summed queries.

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/quest.hpp"
#include "core/cuda/quest_boxes.cuh"
#include "core/cuda/row_scores.cuh"
#include "core/cuda/top_lists.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kWarps = 16;

/// One block per KV head and sequence: the sum over its queries of (max(q, 0), min(q, 0)), in f64
/// and in one order. vectors [n_lists, kMostVectors, 2 kWidth], of which the first is written;
/// n_whole: the pages that lie before the call.
template <class T, int kWidth>
__global__ void __launch_bounds__(kWarps * 32)
    sum_halves_kernel(const T* q, int n_rows, const std::int32_t* n_past, int page_size,
                      float* vectors, std::int32_t* n_whole) {
  constexpr int kEach = kWidth / 32;
  __shared__ double of_warp[kWarps][2][kWidth];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int first = thread % 32 * kEach;  // channel of this lane
  const int batch = static_cast<int>(blockIdx.y);
  const std::int64_t list = static_cast<std::int64_t>(batch) * gridDim.x + blockIdx.x;
  take_turn();
  const T* const rows = q + list * n_rows * kWidth + first;
  double high[kEach] = {};
  double low[kEach] = {};
#pragma unroll 4
  for (int row = warp; row < n_rows; row += kWarps) {
    float x[kEach];
    load_row_part(rows + static_cast<std::int64_t>(row) * kWidth, x);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      high[i] += static_cast<double>(fmaxf(x[i], 0.0f));
      low[i] += static_cast<double>(fminf(x[i], 0.0f));
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    of_warp[warp][0][first + i] = high[i];
    of_warp[warp][1][first + i] = low[i];
  }
  __syncthreads();
  for (int c = thread; c < 2 * kWidth; c += kWarps * 32) {
    double sum = 0.0;
    for (int w = 0; w < kWarps; ++w) sum += of_warp[w][c / kWidth][c % kWidth];
    vectors[list * kMostVectors * 2 * kWidth + c] = static_cast<float>(sum);
  }
  if (thread == 0 && blockIdx.x == 0) n_whole[batch] = n_past[batch] / page_size;
}

/// One block per list: the keys of its pages, and behind them those of the page that the call's
/// first token cuts.
__global__ void list_keys_kernel(DeviceLists pages, const std::int32_t* n_past, std::int32_t* keys,
                                 std::int32_t* counts, int stride) {
  take_turn();
  const int batch = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const int n_threads = static_cast<int>(blockDim.x);
  const std::int64_t list = static_cast<std::int64_t>(batch) * gridDim.x + blockIdx.x;
  const std::int32_t* const items = pages.items + list * pages.stride;
  std::int32_t* const to = keys + list * stride;
  const int n_listed = pages.counts[list] * pages.page_size;
  const int n_behind = n_past[batch] % pages.page_size;
  for (int i = thread; i < n_listed; i += n_threads)
    to[i] = items[i / pages.page_size] * pages.page_size + i % pages.page_size;
  for (int i = thread; i < n_behind; i += n_threads)
    to[n_listed + i] = n_past[batch] - n_behind + i;
  if (thread == 0) counts[list] = n_listed + n_behind;
}

}  // namespace

void Quest::choose_before(const void* q, const std::int32_t* n_past, int n_tok,
                          StreamHandle stream) {
  const Launch how{{shape_.n_kv, shape_.n_batch}, kWarps * 32};
  const int n_rows = shape_.group() * n_tok;
  with_types(shape_, [&]<class T, int kWidth>() {
    launch(stream, how, "start the sums of queries", sum_halves_kernel<T, kWidth>,
           static_cast<const T*>(q), n_rows, n_past, options_.page_size, at_.vectors, at_.n_whole);
  });

  RowScores scoring = bounds_call(nullptr, n_past);
  scoring.form = Vectors::parts;
  scoring.vectors = at_.vectors;
  scoring.n_parts = 1;
  scoring.n_vectors = 1;
  scoring.n_more = 0;
  scoring.rows_are_there = false;  // append() came before
  scoring.reduce = Reduce::largest;
  score_rows(scoring, stream);

  TopLists top = lists_call(at_.n_whole);
  top.n_owners = shape_.n_kv;
  top.of_pages = false;
  top.budget =
      most_pages_before(shape_.capacity, options_.page_size, options_.budget, options_.pages);
  make_top_lists(top, stream);

  launch(stream, how, "start the keys of lists", list_keys_kernel,
         DeviceLists{at_.items, at_.counts, most_items_, shape_.n_kv, options_.page_size}, n_past,
         at_.keys, at_.key_counts, key_stride(shape_, options_));
}

int Quest::key_stride(const CallShape& shape, const QuestOptions& options) {
  return (most_pages_before(shape.capacity, options.page_size, options.budget, options.pages) + 1) *
         options.page_size;
}

DeviceLists Quest::lists_before() const {
  return {at_.keys, at_.key_counts, key_stride(shape_, options_), shape_.n_kv, 1};
}

}  // namespace kvscope::gpu
