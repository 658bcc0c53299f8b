// Rows of tokens on their way to experts and back.
#include "core/cuda/launch.cuh"
#include "core/cuda/layer_kernels.hpp"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ void store(void* data, bool is_half, std::int64_t at, float x) {
  if (is_half) {
    static_cast<Bf16*>(data)[at] = __float2bfloat16_rn(x);
  } else {
    static_cast<float*>(data)[at] = x;
  }
}

__global__ void clamped_kernel(const float* gate_up, float alpha, float limit, std::int64_t count,
                               void* hidden, bool is_half) {
  take_turn();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const float gate = fminf(gate_up[2 * i], limit);
  const float up = fminf(fmaxf(gate_up[2 * i + 1], -limit), limit);
  store(hidden, is_half, i, (up + 1.0f) * gate / (1.0f + expf(-alpha * gate)));
}

__global__ void gather_kernel(const float* x, std::int64_t x_stride, const std::int32_t* token,
                              int n, void* y, bool is_half) {
  take_turn();
  const std::int64_t row = blockIdx.x;
  const float* from = x + token[row] * x_stride;
  for (int f = static_cast<int>(threadIdx.x); f < n; f += kThreads)
    store(y, is_half, row * n + f, from[f]);
}

__global__ void scatter_kernel(const float* x, const std::int32_t* token, const float* weight,
                               int n, float* y, std::int64_t y_stride) {
  take_turn();
  const std::int64_t row = blockIdx.x;
  float* to = y + token[row] * y_stride;
  for (int f = static_cast<int>(threadIdx.x); f < n; f += kThreads)
    to[f] += weight[row] * x[row * n + f];
}

__global__ void clear_kernel(float* y, std::int64_t count) {
  take_turn();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) y[i] = 0.0f;
}

template <class... Parameters, class... Arguments>
void start(StreamHandle stream, std::int64_t n_blocks, const char* what,
           void (*kernel)(Parameters...), Arguments... arguments) {
  Launch how;
  how.grid = dim3(static_cast<unsigned>(n_blocks));
  how.threads = kThreads;
  launch(stream, how, what, kernel, arguments...);
}

}  // namespace

void activate_clamped_rows(const float* gate_up, float alpha, float limit, int n, int n_tok,
                           void* hidden, Dtype dtype, StreamHandle stream) {
  const std::int64_t count = static_cast<std::int64_t>(n) * n_tok;
  start(stream, (count + kThreads - 1) / kThreads, "start an expert's activation", clamped_kernel,
        gate_up, alpha, limit, count, hidden, dtype == Dtype::bf16);
}

void gather_rows(const float* x, std::int64_t x_stride, const std::int32_t* token, int n_rows,
                 int n, void* y, Dtype dtype, StreamHandle stream) {
  start(stream, n_rows, "gather an expert's tokens", gather_kernel, x, x_stride, token, n, y,
        dtype == Dtype::bf16);
}

void scatter_rows(const float* x, const std::int32_t* token, const float* weight, int n_rows, int n,
                  float* y, std::int64_t y_stride, StreamHandle stream) {
  start(stream, n_rows, "add an expert's answer", scatter_kernel, x, token, weight, n, y, y_stride);
}

void clear_rows(float* y, std::int64_t count, StreamHandle stream) {
  start(stream, (count + kThreads - 1) / kThreads, "clear rows", clear_kernel, y, count);
}

}  // namespace kvscope::gpu
