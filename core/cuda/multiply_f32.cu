// Products of linear layers in true f32.
#include "core/cuda/launch.cuh"
#include "core/cuda/layer_kernels.hpp"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kDepth = 16;  // columns in shared memory

// A block has kOut rows of the matrix and kTok tokens, a thread kOutEach by kTokEach of them. The
// sums of an element do not depend on these numbers.
template <class T, int kOut, int kTok, int kOutEach, int kTokEach>
__global__ void __launch_bounds__(kThreads)
    multiply_kernel(const T* matrix, std::int64_t n_rows, std::int64_t n_cols, const float* x,
                    std::int64_t x_stride, float* y, std::int64_t y_stride, int n_tok) {
  static_assert(kOut / kOutEach * (kTok / kTokEach) == kThreads);
  __shared__ float w_part[kDepth][kOut + 1];
  __shared__ float x_part[kDepth][kTok + 1];
  const std::int64_t first_out = static_cast<std::int64_t>(blockIdx.x) * kOut;
  const std::int64_t first_tok = static_cast<std::int64_t>(blockIdx.y) * kTok;
  const int out_at = static_cast<int>(threadIdx.x) % (kOut / kOutEach);
  const int tok_at = static_cast<int>(threadIdx.x) / (kOut / kOutEach);
  float sum[kTokEach][kOutEach] = {};
  for (std::int64_t first = 0; first < n_cols; first += kDepth) {
    for (int i = static_cast<int>(threadIdx.x); i < kOut * kDepth; i += kThreads) {
      const std::int64_t row = first_out + i / kDepth;
      const std::int64_t column = first + i % kDepth;
      w_part[i % kDepth][i / kDepth] = row < n_rows && column < n_cols
                                           ? static_cast<float>(matrix[row * n_cols + column])
                                           : 0.0f;
    }
    for (int i = static_cast<int>(threadIdx.x); i < kTok * kDepth; i += kThreads) {
      const std::int64_t token = first_tok + i / kDepth;
      const std::int64_t column = first + i % kDepth;
      x_part[i % kDepth][i / kDepth] =
          token < n_tok && column < n_cols ? x[token * x_stride + column] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kDepth; ++c) {
      float w[kOutEach];
      float v[kTokEach];
#pragma unroll
      for (int i = 0; i < kOutEach; ++i) w[i] = w_part[c][out_at + i * (kOut / kOutEach)];
#pragma unroll
      for (int i = 0; i < kTokEach; ++i) v[i] = x_part[c][tok_at + i * (kTok / kTokEach)];
#pragma unroll
      for (int t = 0; t < kTokEach; ++t) {
#pragma unroll
        for (int i = 0; i < kOutEach; ++i) sum[t][i] = fmaf(w[i], v[t], sum[t][i]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int t = 0; t < kTokEach; ++t) {
    const std::int64_t token = first_tok + tok_at + t * (kTok / kTokEach);
#pragma unroll
    for (int i = 0; i < kOutEach; ++i) {
      const std::int64_t row = first_out + out_at + i * (kOut / kOutEach);
      if (token < n_tok && row < n_rows) y[token * y_stride + row] = sum[t][i];
    }
  }
}

template <class T, int kOut, int kTok, int kOutEach, int kTokEach>
void start(const DeviceMatrix& matrix, const float* x, std::int64_t x_stride, float* y,
           std::int64_t y_stride, int n_tok, StreamHandle stream) {
  Launch how;
  how.grid = dim3(static_cast<unsigned>((matrix.n_rows + kOut - 1) / kOut),
                  static_cast<unsigned>((n_tok + kTok - 1) / kTok));
  how.threads = kThreads;
  launch(stream, how, "start a product", multiply_kernel<T, kOut, kTok, kOutEach, kTokEach>,
         static_cast<const T*>(matrix.data), matrix.n_rows, matrix.n_cols, x, x_stride, y, y_stride,
         n_tok);
}

}  // namespace

void multiply_f32(const DeviceMatrix& matrix, const float* x, std::int64_t x_stride, float* y,
                  std::int64_t y_stride, int n_tok, StreamHandle stream) {
  const bool is_half = matrix.dtype == Dtype::bf16;
  if (n_tok <= 16) {
    (is_half ? start<Bf16, 64, 16, 4, 1> : start<float, 64, 16, 4, 1>)(matrix, x, x_stride, y,
                                                                       y_stride, n_tok, stream);
  } else {
    (is_half ? start<Bf16, 128, 128, 8, 8> : start<float, 128, 128, 8, 8>)(matrix, x, x_stride, y,
                                                                           y_stride, n_tok, stream);
  }
}

}  // namespace kvscope::gpu
