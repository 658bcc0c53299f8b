#include "core/cuda/slash_lists.hpp"

#include <algorithm>

#include "core/cuda/block_sums.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/top_lists.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr const char* kUse = "columns and diagonals";

/// One block per query head: the first n sums become larger than all others.
__global__ void __launch_bounds__(kThreads)
    raise_first_kernel(float* sums, std::int64_t stride, int n_keys, int n_first) {
  take_turn();
  __shared__ float of_warp[kWarps];
  float* const own = sums + blockIdx.x * stride;
  float largest = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < n_keys; i += kThreads)
    largest = fmaxf(largest, own[i]);
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, of_warp[w]);
  for (int i = static_cast<int>(threadIdx.x); i < min(n_first, n_keys); i += kThreads)
    own[i] = largest + 1.0f;
}

struct RowLists {
  DeviceLists columns, slashes;  // of query heads
  int n_past;
  std::int32_t* items;  // [n_tok, n_q, stride]
  std::int32_t* counts;
  int stride;
};

/// One block per row and query head: marks keys, a bit each, and writes them in order.
__global__ void __launch_bounds__(kThreads) row_lists_kernel(RowLists call) {
  take_turn();
  extern __shared__ unsigned marks[];  // a bit per key that the row sees
  __shared__ int of_warp[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const int head = static_cast<int>(blockIdx.x);
  const int pos = call.n_past + static_cast<int>(blockIdx.y);
  const std::int64_t list = static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  const int n_words = pos / 32 + 1;
  for (int i = thread; i < n_words; i += kThreads) marks[i] = 0;
  __syncthreads();
  const auto mark = [&](const DeviceLists& from, auto key_of) {
    const std::int32_t* const items = from.items + std::int64_t{head} * from.stride;
    for (int i = thread; i < from.counts[head]; i += kThreads) {
      const int key = key_of(items[i]);
      if (key >= 0 && key <= pos) atomicOr(&marks[key / 32], 1u << (key % 32));
    }
  };
  mark(call.columns, [](int column) { return column; });
  mark(call.slashes, [&](int distance) { return pos - distance; });
  __syncthreads();
  std::int32_t* const items = call.items + list * call.stride;
  int n_listed = 0;
  for (int first = 0; first < n_words; first += kThreads) {
    const int word = first + thread;
    unsigned bits = word < n_words ? marks[word] : 0;
    int of_round = 0;
    int at = n_listed + sum_before<kWarps>(__popc(bits), of_warp, &of_round);
    for (; bits != 0; bits &= bits - 1) items[at++] = word * 32 + __ffs(static_cast<int>(bits)) - 1;
    n_listed += of_round;
  }
  if (thread == 0) call.counts[list] = n_listed;
}

}  // namespace

DeviceLists SlashLists::choose(const CallShape& shape, const SlashOptions& options,
                               const DeviceRows& rows, int n_past, StreamHandle stream) {
  const std::int32_t n_context = n_past + rows.n_tok;
  VoteCall voters{rows, DeviceLists{}, n_context, std::max(0, rows.n_tok - options.n_voters),
                  rows.n_tok};
  voters.of = VoteCall::Of::q_heads;
  voters.adds_distances = true;
  float* const sums = votes_.sum(shape, voters, stream);

  TopLists top;
  top.stride = votes_.stride();
  top.n_owners = shape.n_q;
  top.n_past = n_context_.upload(&n_context, 1, kUse, stream);
  auto* counts = counts_.room<std::int32_t>(std::int64_t{2} * shape.n_q, kUse);
  const auto best = [&](float* of_keys, int n, int n_raised, GrowingBuffer& memory) {
    Launch how;
    how.grid = dim3(static_cast<unsigned>(shape.n_q));
    how.threads = kThreads;
    launch(stream, how, "start the first columns", raise_first_kernel, of_keys, votes_.stride(),
           n_context, n_raised);
    top.scores = of_keys;
    top.budget = n;
    top.item_stride = std::min(n, n_context);
    top.items = memory.room<std::int32_t>(std::int64_t{shape.n_q} * top.item_stride, kUse);
    top.counts = counts;
    counts += shape.n_q;
    make_top_lists(top, stream);
    return DeviceLists{top.items, top.counts, top.item_stride, shape.n_q, 1};
  };
  RowLists call;
  call.columns = best(sums, options.n_columns, options.n_first, columns_);
  call.slashes =
      best(sums + shape.n_q * votes_.stride(), options.n_slashes, options.n_near, slashes_);
  call.n_past = n_past;
  call.stride = std::min(n_context, options.n_columns + options.n_slashes);
  const std::int64_t n_lists = std::int64_t{rows.n_tok} * shape.n_q;
  call.items = items_.room<std::int32_t>(n_lists * call.stride, kUse);
  call.counts = item_counts_.room<std::int32_t>(n_lists, kUse);
  Launch how;
  how.grid = dim3(static_cast<unsigned>(shape.n_q), static_cast<unsigned>(rows.n_tok));
  how.threads = kThreads;
  how.shared_bytes = (n_context + 31) / 32 * static_cast<int>(sizeof(unsigned));
  launch(stream, how, "start the lists of rows", row_lists_kernel, call);
  return {call.items, call.counts, call.stride, shape.n_q, 1};
}

}  // namespace kvscope::gpu
