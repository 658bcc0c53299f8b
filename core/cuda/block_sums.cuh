// Sums over the threads of a warp and of a block, in one order.
#pragma once

namespace kvscope::gpu {

/// Over the lanes up to this one.
template <class T>
__device__ __forceinline__ T warp_inclusive(T x) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const T y = __shfl_up_sync(0xffffffffu, x, step);
    if (static_cast<int>(threadIdx.x) % 32 >= step) x += y;
  }
  return x;
}

/// Over the threads before this one; *all: over all threads. of_warp: shared memory, one per warp.
/// All threads call it.
template <int kWarps, class T>
__device__ T sum_before(T x, T* of_warp, T* all) {
  static_assert(kWarps <= 32);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const T inclusive = warp_inclusive(x);
  __syncthreads();  // the sums before these have been read
  if (lane == 31) of_warp[warp] = inclusive;
  __syncthreads();
  const T own = lane < kWarps ? of_warp[lane] : 0;
  const T warps = warp_inclusive(own);
  *all = __shfl_sync(0xffffffffu, warps, 31);
  return __shfl_sync(0xffffffffu, warps - own, warp) + inclusive - x;
}

}  // namespace kvscope::gpu
