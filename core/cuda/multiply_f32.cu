// Products of linear layers in true f32.
#include "core/cuda/launch.cuh"
#include "core/cuda/layer_kernels.hpp"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 256;

/// Of a block: kOut rows of the matrix, kTok tokens, of which a thread has kOutEach by kTokEach;
/// kDepth columns at a time lie in shared memory.
template <int kOut_, int kTok_, int kOutEach_, int kTokEach_, int kDepth_>
struct Tile {
  static constexpr int kOut = kOut_, kTok = kTok_, kOutEach = kOutEach_, kTokEach = kTokEach_;
  static constexpr int kDepth = kDepth_;
  static_assert(kOut / kOutEach * (kTok / kTokEach) == kThreads);
  static_assert(kOut * kDepth % kThreads == 0 && kTok * kDepth % kThreads == 0);
};

// The sums of an element, column by column, do not depend on the tile.
template <class T, class Tile>
__global__ void __launch_bounds__(kThreads)
    multiply_kernel(const T* matrix, std::int64_t n_rows, std::int64_t n_cols, const float* x,
                    std::int64_t x_stride, float* y, std::int64_t y_stride, int n_tok) {
  take_turn();
  constexpr int kOut = Tile::kOut, kTok = Tile::kTok, kDepth = Tile::kDepth;
  constexpr int kOutStep = kOut / Tile::kOutEach, kTokStep = kTok / Tile::kTokEach;
  __shared__ float w_part[kDepth][kOut + 1];
  __shared__ float x_part[kDepth][kTok + 1];
  const std::int64_t first_out = static_cast<std::int64_t>(blockIdx.x) * kOut;
  const std::int64_t first_tok = static_cast<std::int64_t>(blockIdx.y) * kTok;
  const int thread = static_cast<int>(threadIdx.x);
  const int out_at = thread % kOutStep;
  const int tok_at = thread / kOutStep;
  // the next columns are on their way while these are multiplied
  float w_next[kOut * kDepth / kThreads];
  float x_next[kTok * kDepth / kThreads];
  const auto fetch = [&](std::int64_t first) {
#pragma unroll
    for (int i = 0; i < kOut * kDepth / kThreads; ++i) {
      const std::int64_t row = first_out + (thread + i * kThreads) / kDepth;
      const std::int64_t column = first + (thread + i * kThreads) % kDepth;
      w_next[i] = row < n_rows && column < n_cols
                      ? static_cast<float>(matrix[row * n_cols + column])
                      : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kTok * kDepth / kThreads; ++i) {
      const std::int64_t token = first_tok + (thread + i * kThreads) / kDepth;
      const std::int64_t column = first + (thread + i * kThreads) % kDepth;
      x_next[i] = token < n_tok && column < n_cols ? x[token * x_stride + column] : 0.0f;
    }
  };
  float sum[Tile::kTokEach][Tile::kOutEach] = {};
  fetch(0);
  for (std::int64_t first = 0; first < n_cols; first += kDepth) {
#pragma unroll
    for (int i = 0; i < kOut * kDepth / kThreads; ++i)
      w_part[(thread + i * kThreads) % kDepth][(thread + i * kThreads) / kDepth] = w_next[i];
#pragma unroll
    for (int i = 0; i < kTok * kDepth / kThreads; ++i)
      x_part[(thread + i * kThreads) % kDepth][(thread + i * kThreads) / kDepth] = x_next[i];
    __syncthreads();
    if (first + kDepth < n_cols) fetch(first + kDepth);
#pragma unroll
    for (int c = 0; c < kDepth; ++c) {
      float w[Tile::kOutEach];
      float v[Tile::kTokEach];
#pragma unroll
      for (int i = 0; i < Tile::kOutEach; ++i) w[i] = w_part[c][out_at + i * kOutStep];
#pragma unroll
      for (int t = 0; t < Tile::kTokEach; ++t) v[t] = x_part[c][tok_at + t * kTokStep];
#pragma unroll
      for (int t = 0; t < Tile::kTokEach; ++t) {
#pragma unroll
        for (int i = 0; i < Tile::kOutEach; ++i) sum[t][i] = fmaf(w[i], v[t], sum[t][i]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int t = 0; t < Tile::kTokEach; ++t) {
    const std::int64_t token = first_tok + tok_at + t * kTokStep;
#pragma unroll
    for (int i = 0; i < Tile::kOutEach; ++i) {
      const std::int64_t row = first_out + out_at + i * kOutStep;
      if (token < n_tok && row < n_rows) y[token * y_stride + row] = sum[t][i];
    }
  }
}

/// The largest tile that still gives every second multiprocessor a block; else the last.
template <class T, class Tile, class... Smaller>
void start(const DeviceMatrix& matrix, const float* x, std::int64_t x_stride, float* y,
           std::int64_t y_stride, int n_tok, StreamHandle stream) {
  constexpr std::int64_t kEnoughBlocks = 64;
  const std::int64_t n_out = (matrix.n_rows + Tile::kOut - 1) / Tile::kOut;
  const std::int64_t n_of_tokens = (n_tok + Tile::kTok - 1) / Tile::kTok;
  if constexpr (sizeof...(Smaller) > 0) {
    if (n_out * n_of_tokens < kEnoughBlocks)
      return start<T, Smaller...>(matrix, x, x_stride, y, y_stride, n_tok, stream);
  }
  launch(stream, {{n_out, n_of_tokens}, kThreads}, "start a product", multiply_kernel<T, Tile>,
         static_cast<const T*>(matrix.data), matrix.n_rows, matrix.n_cols, x, x_stride, y, y_stride,
         n_tok);
}

using Large = Tile<128, 128, 8, 8, 16>;
using Middle = Tile<64, 64, 4, 4, 32>;
using Small = Tile<32, 32, 2, 2, 64>;
using FewTokens = Tile<64, 16, 4, 1, 32>;
using Least = Tile<16, 16, 1, 1, 64>;

template <class T>
void multiply(const DeviceMatrix& matrix, const float* x, std::int64_t x_stride, float* y,
              std::int64_t y_stride, int n_tok, StreamHandle stream) {
  (n_tok <= 16
       ? start<T, FewTokens, Least>
       : start<T, Large, Middle, Small, Least>)(matrix, x, x_stride, y, y_stride, n_tok, stream);
}

}  // namespace

void multiply_f32(const DeviceMatrix& matrix, const float* x, std::int64_t x_stride, float* y,
                  std::int64_t y_stride, int n_tok, StreamHandle stream) {
  (matrix.dtype == DType::bf16 ? multiply<Bf16> : multiply<float>)(matrix, x, x_stride, y, y_stride,
                                                                   n_tok, stream);
}

}  // namespace kvscope::gpu
