// The instructions of Hopper that C++ has no name for, and rows of 16-bit numbers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace kvscope::gpu {

using Bf16 = __nv_bfloat16;

/// Before the first read or write of what earlier kernels of the stream touch: until they have
/// ended. Every kernel calls it, or take_turn(); tests/architecture looks.
__device__ __forceinline__ void wait_for_earlier_kernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// Waits for the earlier kernels, and then lets the next one begin: when it does, what came before
/// this kernel has ended. Not for kernels that write rows or positions, which others read before
/// they wait (DeviceRows in attend.hpp): those let nobody begin early.
__device__ __forceinline__ void take_turn() {
  wait_for_earlier_kernels();
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// c += a b with a [16, 16], b [16, 8] in bf16 and c [16, 8] in f32. Lane l of the warp has rows
/// l / 4 and l / 4 + 8, columns 2 (l % 4) and the next one, of c.
__device__ __forceinline__ void multiply_add(float (&c)[4], std::uint32_t a0, std::uint32_t a1,
                                             std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                                             std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// 2^x; below 2^-126: zero.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// 16 bytes from device to shared memory, past the registers.
__device__ __forceinline__ void copy_16(std::uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

__device__ __forceinline__ void end_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kLeft>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

/// 16 bytes that are read once: they do not push other data out of the first cache.
__device__ __forceinline__ uint4 load_once(const void* global) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(global));
  return x;
}

__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

__device__ __forceinline__ float low_half(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_half(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

/// kCount consecutive elements of a row as floats; 2, 4 or 8 of bf16, 2 or 4 of f32.
template <int kCount>
__device__ __forceinline__ void load_row_part(const Bf16* from, float (&out)[kCount]) {
  static_assert(kCount == 2 || kCount == 4 || kCount == 8);
  std::uint32_t words[kCount / 2];
  if constexpr (kCount == 8) {
    const uint4 x = *reinterpret_cast<const uint4*>(from);
    words[0] = x.x, words[1] = x.y, words[2] = x.z, words[3] = x.w;
  } else if constexpr (kCount == 4) {
    const uint2 x = *reinterpret_cast<const uint2*>(from);
    words[0] = x.x, words[1] = x.y;
  } else {
    words[0] = *reinterpret_cast<const std::uint32_t*>(from);
  }
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    out[2 * i] = low_half(words[i]);
    out[2 * i + 1] = high_half(words[i]);
  }
}
template <int kCount>
__device__ __forceinline__ void load_row_part(const float* from, float (&out)[kCount]) {
  static_assert(kCount == 2 || kCount == 4);
  if constexpr (kCount == 4) {
    const float4 x = *reinterpret_cast<const float4*>(from);
    out[0] = x.x, out[1] = x.y, out[2] = x.z, out[3] = x.w;
  } else {
    const float2 x = *reinterpret_cast<const float2*>(from);
    out[0] = x.x, out[1] = x.y;
  }
}

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(Bf16 x) {
  return __bfloat162float(x);
}

__device__ __forceinline__ void store_element(float* to, float x) {
  *to = x;
}
__device__ __forceinline__ void store_element(Bf16* to, float x) {
  *to = __float2bfloat16_rn(x);
}
__device__ __forceinline__ void store_element(__half* to, float x) {
  *to = __float2half_rn(x);
}

/// Four consecutive elements, at a multiple of four.
__device__ __forceinline__ void store_four(float* to, float a, float b, float c, float d) {
  *reinterpret_cast<float4*>(to) = make_float4(a, b, c, d);
}
__device__ __forceinline__ void store_four(Bf16* to, float a, float b, float c, float d) {
  *reinterpret_cast<uint2*>(to) = make_uint2(pack(a, b), pack(c, d));
}

template <class T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

}  // namespace kvscope::gpu
