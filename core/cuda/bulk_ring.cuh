// Stretches of device memory copied into a ring of stages in shared memory, by the copy engine
// and without registers. Warps consume tiles in turn; whoever has read a stage fills it again, so
// that nobody waits for an empty one.
#pragma once

#include <cstdint>

#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

constexpr int kMostStages = 32;

/// What says that a stage is full, and of which tile.
struct RingState {
  std::uint64_t full[kMostStages];  // barriers: one arrival, and the bytes that it announced
  int tile[kMostStages];            // the last one whose copies were begun here
};

/// Tiles are counted from 0 through all phases of a kernel; tile i takes stage i % n_stages.
struct BulkRing {
  RingState* state;
  unsigned char* stages;  // in shared memory, at a multiple of 128
  int stage_bytes;
  int n_stages;
  unsigned share;  // share_of(n_stages): division by n_stages

  static unsigned share_of(int n_stages) {
    return static_cast<unsigned>((std::uint64_t{1} << 32) / static_cast<unsigned>(n_stages) + 1);
  }
  /// How often its stage was filled before. Exact below 2^32 / n_stages.
  __device__ __forceinline__ int round_of(int tile) const {
    return static_cast<int>(__umulhi(static_cast<unsigned>(tile), share));
  }
  __device__ __forceinline__ int stage_of(int tile) const {
    return tile - round_of(tile) * n_stages;
  }
  /// By one thread, before anything else, and before a barrier for the other threads.
  __device__ __forceinline__ void begin() const {
    for (int i = 0; i < n_stages; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(state->full + i))
                   : "memory");
      state->tile[i] = -1;
    }
    // the copy engine shall see them too
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __device__ __forceinline__ unsigned char* at(int tile) const {
    return stages + stage_of(tile) * stage_bytes;
  }
  /// By one thread, when the stage's last tile was read by all who read it: `bytes` will come.
  __device__ __forceinline__ void announce(int tile, int bytes) const {
    const int stage = stage_of(tile);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(state->full + stage)),
                 "r"(bytes)
                 : "memory");
    asm volatile(
        "{\n.reg .b32 before;\natom.release.cta.shared::cta.exch.b32 before, [%0], %1;\n}" ::"r"(
            shared_address(state->tile + stage)),
        "r"(tile)
        : "memory");
  }
  /// A part of an announced tile; `bytes` and both addresses are multiples of 16.
  __device__ __forceinline__ void copy(int tile, int to, const void* from, int bytes) const {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(shared_address(at(tile) + to)),
        "l"(from), "r"(bytes), "r"(shared_address(state->full + stage_of(tile)))
        : "memory");
  }
  /// By a whole warp: until all bytes of an announced tile, or of one that somebody will announce,
  /// have come.
  __device__ __forceinline__ void wait(int tile) const {
    const int stage = stage_of(tile);
    // The barrier knows rounds by their parity alone: an earlier tile of this stage may still be on
    // its way to another warp, and the one before it says "full" too. One lane looks: 32 of these
    // in one place take turns. The first round has no earlier tile.
    if (round_of(tile) > 0 && threadIdx.x % 32 == 0) {
      const std::uint32_t flag = shared_address(state->tile + stage);
      int found = -1;
      while (found != tile) {
        asm volatile("atom.acquire.cta.shared::cta.or.b32 %0, [%1], 0;"
                     : "=r"(found)
                     : "r"(flag)
                     : "memory");
      }
    }
    __syncwarp();
    const std::uint32_t barrier = shared_address(state->full + stage);
    const auto parity = static_cast<std::uint32_t>(round_of(tile) & 1);
    std::uint32_t is_full = 0;
    while (is_full == 0) {
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}\n"
          : "=r"(is_full)
          : "r"(barrier), "r"(parity)
          : "memory");
    }
  }
};

}  // namespace kvscope::gpu
