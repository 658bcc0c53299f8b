// Hopper's matrix instructions of a warpgroup: 64 rows at a time, right factors in shared memory.
#pragma once

#include <cstdint>

namespace kvscope::gpu {

/// Where an operand lies: rows of 128 bytes, rotated (byte_in_swizzled_row), in groups of eight
/// (1024 bytes), at a multiple of 1024 bytes. `group_bytes`: from 64 columns to the next 64 ones
/// where columns are the product's (transposed operands); else unused.
__device__ __forceinline__ std::uint64_t matrix_at(std::uint32_t shared,
                                                   std::uint32_t group_bytes) {
  constexpr std::uint64_t kRotated128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kEightRows = std::uint64_t{1024 / 16} << 32;
  return kRotated128 | kEightRows | (std::uint64_t{group_bytes / 16} << 16) |
         ((shared & 0x3ffffu) >> 4);
}

/// Byte of the 16-byte chunk `part` (0 to 7) of `row` in such rows.
__device__ __forceinline__ std::uint32_t byte_in_swizzled_row(int row, int part) {
  return static_cast<std::uint32_t>(row * 128 + ((part ^ (row & 7)) << 4));
}

/// Ordinary writes of this thread to shared memory, before a barrier: for the matrix instructions
/// behind it.
__device__ __forceinline__ void show_writes_to_matrix_unit() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Before the first instruction of a batch, and where its registers were written.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until at most kLeft batches run. Nobody may touch a batch's registers before: hold() them after.
template <int kLeft>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
template <int kCount>
__device__ __forceinline__ void hold(float (&x)[kCount][4]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(x[n][i])::"memory");
  }
}
template <int kCount>
__device__ __forceinline__ void hold(std::uint32_t (&x)[kCount][4]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(x[n][i])::"memory");
  }
}

// clang-format off
#define KVSCOPE_QUAD(c, n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define KVSCOPE_OCTET(c, n) KVSCOPE_QUAD(c, n), KVSCOPE_QUAD(c, n + 1)
#define KVSCOPE_32(c, n)                          \
  KVSCOPE_OCTET(c, n), KVSCOPE_OCTET(c, n + 2), \
      KVSCOPE_OCTET(c, n + 4), KVSCOPE_OCTET(c, n + 6)
#define KVSCOPE_NAMES_32 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define KVSCOPE_NAMES_64 KVSCOPE_NAMES_32 "," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/// c (+)= a b^T: 64 rows a and 64 rows b of 16 columns, both in shared memory. A lane's part of c
/// is that of multiply_add (ptx.cuh); warp w of the group has rows 16 w to 16 w + 15.
__device__ __forceinline__ void multiply_rows(float (&c)[8][4], std::uint64_t a, std::uint64_t b,
                                              int adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" KVSCOPE_NAMES_32 "}, "
      "%32, %33, p, 1, 1, 0, 0;\n}\n"
      : KVSCOPE_32(c, 0) : "l"(a), "l"(b), "r"(adds));
}

/// c += a b: a [64, 16] in registers as multiply_add has it, b [16, 64 or 128] in shared memory.
__device__ __forceinline__ void multiply_columns(float (&c)[8][4], const std::uint32_t (&a)[4],
                                                 std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" KVSCOPE_NAMES_32 "}, "
      "{%32,%33,%34,%35}, %36, 1, 1, 1, 1;\n"
      : KVSCOPE_32(c, 0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void multiply_columns(float (&c)[16][4], const std::uint32_t (&a)[4],
                                                 std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" KVSCOPE_NAMES_64 "}, "
      "{%64,%65,%66,%67}, %68, 1, 1, 1, 1;\n"
      : KVSCOPE_32(c, 0), KVSCOPE_32(c, 8) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef KVSCOPE_NAMES_64
#undef KVSCOPE_NAMES_32
#undef KVSCOPE_32
#undef KVSCOPE_OCTET
#undef KVSCOPE_QUAD
// clang-format on

}  // namespace kvscope::gpu
