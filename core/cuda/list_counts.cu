#include "core/cuda/list_counts.hpp"

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kWindow = 1 << 18;  // keys that are marked at a time, a bit each

/// The sum of every thread's n, in thread 0.
__device__ unsigned long long block_sum(unsigned long long n) {
  __shared__ unsigned long long parts[kThreads / 32];
  for (int step = 16; step > 0; step /= 2) n += __shfl_down_sync(0xffffffffu, n, step);
  __syncthreads();  // the sum before this one has been read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = n;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < kThreads / 32; ++i) n += parts[i];
  }
  return n;
}

/// A block per KV head.
__global__ void __launch_bounds__(kThreads) count_lists_kernel(ListCountCall call) {
  __shared__ unsigned marks[kWindow / 32];
  take_turn();
  const int kv_head = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int group = call.n_q / call.n_kv;
  const int n_context = call.pos_begin + call.n_tok;
  const DeviceLists& lists = call.lists;
  const bool per_head = lists.n_owners == call.n_q;
  const unsigned long long n_rows = call.n_tok;
  const unsigned long long n_own = call.adds_own ? n_rows * (n_rows + 1) / 2 : 0;

  if (n_rows == 1 && !per_head) {  // one list: what it has is what the group loads
    unsigned long long n_listed = 0;
    for (int i = thread; i < lists.counts[kv_head]; i += kThreads) {
      const int first = lists.items[kv_head * lists.stride + i] * lists.page_size;
      n_listed += min(lists.page_size, n_context - first);
    }
    n_listed = block_sum(n_listed) + n_own;
    if (thread != 0) return;
    for (int q = 0; q < group; ++q) call.attended[kv_head * group + q] = n_listed;
    call.loaded[kv_head] = n_listed;
    return;
  }

  unsigned long long n_loaded = call.adds_own && thread == 0 ? n_rows : 0;
  for (int base = 0; base < n_context; base += kWindow) {
    const int n_here = min(kWindow, n_context - base);
    for (int i = thread; i < (n_here + 31) / 32; i += kThreads) marks[i] = 0;
    __syncthreads();
    for (int h = 0; h < (per_head ? group : 1); ++h) {
      const int owner = per_head ? kv_head * group + h : kv_head;
      unsigned long long n_listed = 0;
      for (int row = 0; row < call.n_tok; ++row) {
        const std::int64_t list = std::int64_t{row} * lists.n_owners + owner;
        const std::int32_t* const items = lists.items + list * lists.stride;
        const int n_keys = lists.counts[list] * lists.page_size;
        for (int i = thread; i < n_keys; i += kThreads) {
          const int key = items[i / lists.page_size] * lists.page_size + i % lists.page_size - base;
          if (key < 0 || key >= n_here) continue;
          ++n_listed;
          atomicOr(&marks[key / 32], 1u << (key % 32));
        }
      }
      n_listed = block_sum(n_listed);
      if (thread != 0) continue;
      for (int q = 0; q < (per_head ? 1 : group); ++q) {
        std::uint64_t& sum = call.attended[per_head ? owner : kv_head * group + q];
        sum = (base == 0 ? n_own : sum) + n_listed;
      }
    }
    __syncthreads();
    for (int i = thread; i < (n_here + 31) / 32; i += kThreads) n_loaded += __popc(marks[i]);
    __syncthreads();
  }
  n_loaded = block_sum(n_loaded);
  if (thread == 0) call.loaded[kv_head] = n_loaded;
}

}  // namespace

void count_lists(const ListCountCall& call, StreamHandle stream) {
  launch(stream, {{call.n_kv}, kThreads}, "start counting lists", count_lists_kernel, call);
}

}  // namespace kvscope::gpu
