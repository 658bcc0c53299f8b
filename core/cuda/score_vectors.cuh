// Vectors as the right factor of the tensor cores, and rows of bf16 times them: what the kernels
// share that score rows.
#pragma once

#include "core/cuda/ptx.cuh"
#include "core/cuda/row_scores.cuh"

namespace kvscope::gpu {

constexpr int kTerms = 3;  // of a vector, in bf16; they sum to all bits

/// Four consecutive channels of a vector, summed over its parts.
template <class T>
__device__ __forceinline__ float4 vector_quad(const RowScores& call, int list, int vector,
                                              int channel) {
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (vector >= call.n_vectors) return sum;
  if (call.form == Vectors::parts) {
    const float* from =
        static_cast<const float*>(call.vectors) +
        (static_cast<std::int64_t>(list) * call.n_parts * kMostVectors + vector) * call.width +
        channel;
#pragma unroll 4
    for (int part = 0; part < call.n_parts; ++part) {
      const float4 x = *reinterpret_cast<const float4*>(from + static_cast<std::int64_t>(part) *
                                                                   kMostVectors * call.width);
      sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
    return sum;
  }
  const int half = call.width / 2;
  const bool is_low = channel >= half;
  const T* from =
      static_cast<const T*>(call.vectors) +
      (static_cast<std::int64_t>(list) * call.n_parts * call.n_vectors + vector) * half +
      (is_low ? channel - half : channel);
#pragma unroll 4
  for (int part = 0; part < call.n_parts; ++part) {
    float x[4];
    load_row_part(from + part * half, x);
    sum.x += is_low ? fminf(x[0], 0.0f) : fmaxf(x[0], 0.0f);
    sum.y += is_low ? fminf(x[1], 0.0f) : fmaxf(x[1], 0.0f);
    sum.z += is_low ? fminf(x[2], 0.0f) : fmaxf(x[2], 0.0f);
    sum.w += is_low ? fminf(x[3], 0.0f) : fmaxf(x[3], 0.0f);
  }
  return sum;
}

/// Lays out the vectors of a list for multiply_by_vectors, by kThreads threads of which the caller
/// is number `thread`. Words: uint2 with one tile of eight vectors, uint4 with two.
template <int kWidth, int kVectorTiles, int kThreads, class Words>
__device__ __forceinline__ void lay_out_vectors(const RowScores& call, int list, int thread,
                                                Words (&right)[kTerms][kWidth / 16][32]) {
  static_assert(sizeof(Words) >= 8 * kVectorTiles);
  for (int i = thread; i < 8 * kVectorTiles * (kWidth / 4); i += kThreads) {
    const int vector = i / (kWidth / 4);
    const int channel = i % (kWidth / 4) * 4;
    const float4 x = vector_quad<Bf16>(call, list, vector, channel);
    float left[4] = {x.x, x.y, x.z, x.w};
    const int step = channel / 32 * 2 + channel % 8 / 4;
    const int to_lane = vector % 8 * 4 + channel % 32 / 8;
#pragma unroll
    for (int term = 0; term < kTerms; ++term) {
      float rounded[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        rounded[c] = __bfloat162float(__float2bfloat16_rn(left[c]));
        left[c] -= rounded[c];
      }
      std::uint32_t* const to = &right[term][step][to_lane].x + vector / 8 * 2;
      to[0] = pack(rounded[0], rounded[1]);
      to[1] = pack(rounded[2], rounded[3]);
    }
  }
}

/// Products of 16 rows per tile. Lane l has rows l / 4 and l / 4 + 8 of a tile, of them the 16-byte
/// chunks l % 4, l % 4 + 4, ...; both factors call these the channels that the instruction wants,
/// since a product does not depend on their order. The terms' sums are chains of their own, since
/// an instruction waits for the one before it in its chain, and are added from the smallest.
/// kUsed: terms that are not all zero.
template <int kUsed = kTerms, int kTiles, int kVectorTiles, int kChunks, class Words>
__device__ __forceinline__ void multiply_by_vectors(float (&product)[kTiles][kVectorTiles][4],
                                                    const uint4 (&low)[kTiles][kChunks],
                                                    const uint4 (&high)[kTiles][kChunks],
                                                    const Words (&right)[kTerms][2 * kChunks][32],
                                                    int lane) {
  float part[kUsed][kTiles][kVectorTiles][4] = {};
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
#pragma unroll
    for (int term = 0; term < kUsed; ++term) {
      const Words b0 = right[term][2 * j][lane];
      const Words b1 = right[term][2 * j + 1][lane];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        float(&sum)[kVectorTiles][4] = part[term][m];
        multiply_add(sum[0], low[m][j].x, high[m][j].x, low[m][j].y, high[m][j].y, b0.x, b0.y);
        multiply_add(sum[0], low[m][j].z, high[m][j].z, low[m][j].w, high[m][j].w, b1.x, b1.y);
        if constexpr (kVectorTiles == 2) {
          multiply_add(sum[1], low[m][j].x, high[m][j].x, low[m][j].y, high[m][j].y, b0.z, b0.w);
          multiply_add(sum[1], low[m][j].z, high[m][j].z, low[m][j].w, high[m][j].w, b1.z, b1.w);
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kVectorTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float sum = part[kUsed - 1][m][n][i];
#pragma unroll
        for (int term = kUsed - 2; term >= 0; --term) sum += part[term][m][n][i];
        product[m][n][i] = sum;
      }
    }
  }
}

}  // namespace kvscope::gpu
