// A decode step of SparQ: which share of the approximate weights its list has, and the mean value
// that gets the rest.
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/sparq.hpp"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 1024;

/// The largest number, or the sum, of every thread's; in one order.
template <bool kLargest>
__device__ float over_block(float x) {
  __shared__ float parts[kThreads / 32];
  const auto join = [](float a, float b) { return kLargest ? fmaxf(a, b) : a + b; };
  for (int step = 16; step > 0; step /= 2) x = join(x, __shfl_xor_sync(0xffffffffu, x, step));
  __syncthreads();  // what was there before has been read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = parts[0];
  for (int i = 1; i < kThreads / 32; ++i) x = join(x, parts[i]);
  return x;
}

/// A block per query head. scores [n_kv, 1 + group, stride] of all keys, the query's own last.
__global__ void __launch_bounds__(kThreads)
    shares_kernel(const float* scores, std::int64_t stride, const std::int32_t* n_past,
                  DeviceLists lists, int group, float* shares) {
  take_turn();
  const int thread = static_cast<int>(threadIdx.x);
  const int head = static_cast<int>(blockIdx.x);
  const int list = head / group;
  const float* const of_key = scores + (list * (1 + group) + 1 + head % group) * stride;
  const int own = *n_past;
  float largest = -INFINITY;
  for (int key = thread; key <= own; key += kThreads) largest = fmaxf(largest, of_key[key]);
  largest = over_block<true>(largest);
  float all = 0.0f;
  for (int key = thread; key <= own; key += kThreads) all += expf(of_key[key] - largest);
  all = over_block<false>(all);
  const std::int32_t* const items = lists.items + static_cast<std::int64_t>(list) * lists.stride;
  float kept = 0.0f;
  for (int i = thread; i < lists.counts[list]; i += kThreads)
    kept += expf(of_key[items[i]] - largest);
  kept = over_block<false>(kept) + expf(of_key[own] - largest);
  if (thread == 0) shares[head] = fminf(kept / all, 1.0f);
}

/// A block per query head, a thread per channel.
template <class T>
__global__ void mix_kernel(const float* shares, const float* means, int group, T* out) {
  take_turn();
  const int width = static_cast<int>(blockDim.x);
  const int head = static_cast<int>(blockIdx.x);
  const int c = static_cast<int>(threadIdx.x);
  const float share = shares[head];
  T* const at = out + head * width + c;
  const float mean = means[head / group * width + c];
  store_element(at, share * static_cast<float>(*at) + (1.0f - share) * mean);
}

}  // namespace

void Sparq::find_shares(const CallShape& shape, const float* scores, std::int64_t stride,
                        const std::int32_t* n_past, StreamHandle stream) {
  shares_ = share_memory_.room<float>(shape.n_q, "SparQ's shares");
  Launch how;
  how.grid = dim3(static_cast<unsigned>(shape.n_q));
  how.threads = kThreads;
  launch(stream, how, "start the shares of lists", shares_kernel, scores, stride, n_past, lists_,
         shape.group(), shares_);
}

void Sparq::mix(const CallShape& shape, const float* means, void* out, StreamHandle stream) const {
  Launch how;
  how.grid = dim3(static_cast<unsigned>(shape.n_q));
  how.threads = shape.d_head;
  if (shape.dtype == Dtype::bf16) {
    launch(stream, how, "start the mean value's share", mix_kernel<Bf16>, shares_, means,
           shape.group(), static_cast<Bf16*>(out));
  } else {
    launch(stream, how, "start the mean value's share", mix_kernel<float>, shares_, means,
           shape.group(), static_cast<float*>(out));
  }
}

}  // namespace kvscope::gpu
