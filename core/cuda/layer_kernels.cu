#include "core/cuda/layer_kernels.hpp"

#include <algorithm>

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kMostHead = 256;  // channels

// These kernels begin when the one before has ended, and let none begin before they end: attention
// reads what they write without waiting.
template <class... Parameters, class... Arguments>
void start(StreamHandle stream, Blocks grid, const char* what, void (*kernel)(Parameters...),
           Arguments... arguments) {
  launch(stream, {grid, kThreads}, what, kernel, arguments...);
}

Blocks blocks_for(std::int64_t count, std::int64_t each = kThreads) {
  return std::max<std::int64_t>(1, (count + each - 1) / each);
}

// One row of blocks per token. A grid has 65535 rows at most; calls are shorter.
Blocks blocks_of_rows(int n, int n_tok) {
  return {(n + kThreads - 1) / kThreads, n_tok};
}

__device__ __forceinline__ float element(const void* data, bool is_half, std::int64_t at) {
  return is_half ? to_float(static_cast<const Bf16*>(data)[at])
                 : static_cast<const float*>(data)[at];
}
__device__ __forceinline__ void store(void* data, bool is_half, std::int64_t at, float x) {
  if (is_half) {
    store_element(static_cast<Bf16*>(data) + at, x);
  } else {
    store_element(static_cast<float*>(data) + at, x);
  }
}

__global__ void embed_kernel(DeviceMatrix embedding, const std::int32_t* tokens, float scale,
                             float* x) {
  take_turn();
  const std::int64_t t = blockIdx.x;
  const std::int64_t from = tokens[t] * embedding.n_cols;
  for (std::int64_t f = threadIdx.x; f < embedding.n_cols; f += kThreads)
    x[t * embedding.n_cols + f] =
        scale * element(embedding.data, embedding.dtype == DType::bf16, from + f);
}

// The sum over a block, in an order of its own whatever else runs. All threads get it.
__device__ float block_sum(float x) {
  __shared__ float parts[kThreads / 32];
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < kThreads / 32; ++i) sum += parts[i];
  return sum;
}

__global__ void norm_kernel(NormCall call) {
  take_turn();
  const float* x = call.x + blockIdx.x * call.x_stride;
  float* y = call.y + blockIdx.x * call.y_stride;
  float mean = 0.0f;
  if (call.takes_mean) {
    float sum = 0.0f;
    for (int f = static_cast<int>(threadIdx.x); f < call.n; f += kThreads) sum += x[f];
    mean = block_sum(sum) / static_cast<float>(call.n);
  }
  float squares = 0.0f;
  for (int f = static_cast<int>(threadIdx.x); f < call.n; f += kThreads) {
    const float d = x[f] - mean;
    squares = fmaf(d, d, squares);
  }
  const float variance = block_sum(squares) / static_cast<float>(call.n);
  const float scale = 1.0f / sqrtf(variance + call.eps);
  for (int f = static_cast<int>(threadIdx.x); f < call.n; f += kThreads) {
    float normed = (x[f] - mean) * scale * call.weight[f];
    if (call.bias != nullptr) normed += call.bias[f];
    y[f] = normed;
    if (call.halves != nullptr)
      static_cast<Bf16*>(call.halves)[static_cast<std::int64_t>(blockIdx.x) * call.n + f] =
          __float2bfloat16_rn(normed);
  }
}

// The same for rows of whole float4 that one block holds in registers, kQuads a thread.
template <int kQuads>
__global__ void __launch_bounds__(kThreads) norm_quads_kernel(NormCall call) {
  take_turn();
  const std::int64_t t = blockIdx.x;
  auto* const x = reinterpret_cast<float4*>(call.x + t * call.x_stride);
  auto* const y = reinterpret_cast<float4*>(call.y + t * call.y_stride);
  const auto* const added = reinterpret_cast<const float4*>(call.added + t * call.n);
  const int n_quads = call.n / 4;
  const int thread = static_cast<int>(threadIdx.x);
  float4 row[kQuads];
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
    const int i = j * kThreads + thread;
    row[j] = i < n_quads ? x[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  if (call.added != nullptr) {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      const int i = j * kThreads + thread;
      if (i >= n_quads) break;
      const float4 more = added[i];
      row[j] =
          make_float4(row[j].x + more.x, row[j].y + more.y, row[j].z + more.z, row[j].w + more.w);
      x[i] = row[j];
    }
  }
  float mean = 0.0f;
  if (call.takes_mean) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kQuads; ++j) sum += (row[j].x + row[j].y) + (row[j].z + row[j].w);
    mean = block_sum(sum) / static_cast<float>(call.n);
  }
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
    if (j * kThreads + thread >= n_quads) break;
    for (const float value : {row[j].x, row[j].y, row[j].z, row[j].w})
      squares = fmaf(value - mean, value - mean, squares);
  }
  const float variance = block_sum(squares) / static_cast<float>(call.n);
  const float scale = 1.0f / sqrtf(variance + call.eps);
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
    const int i = j * kThreads + thread;
    if (i >= n_quads) break;
    const float4 weight = reinterpret_cast<const float4*>(call.weight)[i];
    const float4 bias = call.bias == nullptr ? make_float4(0.0f, 0.0f, 0.0f, 0.0f)
                                             : reinterpret_cast<const float4*>(call.bias)[i];
    const float4 normed = make_float4((row[j].x - mean) * scale * weight.x + bias.x,
                                      (row[j].y - mean) * scale * weight.y + bias.y,
                                      (row[j].z - mean) * scale * weight.z + bias.z,
                                      (row[j].w - mean) * scale * weight.w + bias.w);
    y[i] = normed;
    if (call.halves != nullptr)
      store_four(static_cast<Bf16*>(call.halves) + t * call.n + 4 * i, normed.x, normed.y, normed.z,
                 normed.w);
  }
}

__global__ void rope_kernel(const float* frequencies, int n, float amplitude,
                            std::int64_t pos_begin, float* cos_rows, float* sin_rows) {
  take_turn();
  const std::int64_t t = blockIdx.x;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    const float angle = static_cast<float>(pos_begin + t) * frequencies[i];
    cos_rows[t * n + i] = amplitude * static_cast<float>(cos(static_cast<double>(angle)));
    sin_rows[t * n + i] = amplitude * static_cast<float>(sin(static_cast<double>(angle)));
  }
}

constexpr int kMostPlaced = 3;
struct PlacedHeads {
  HeadsCall calls[kMostPlaced];
  int end[kMostPlaced];  // heads of a token up to and with those of a call
  int n_heads;           // of all calls
};

// A warp has one head of one token.
__global__ void heads_kernel(PlacedHeads placed, std::int64_t n_rows) {
  wait_for_earlier_kernels();  // and writes rows: no take_turn()
  __shared__ float rows[kThreads / 32][kMostHead];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* row = rows[threadIdx.x / 32];
  const std::int64_t index =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  if (index >= n_rows) return;
  const std::int64_t t = index / placed.n_heads;
  const int of_token = static_cast<int>(index % placed.n_heads);
  const int which = of_token < placed.end[0] ? 0 : of_token < placed.end[1] ? 1 : 2;
  const HeadsCall& call = placed.calls[which];
  const std::int64_t head = of_token - (which == 0 ? 0 : placed.end[which - 1]);
  const int d = call.d_head;
  const float* x = call.x + t * call.stride + head * call.head_stride;
  float squares = 0.0f;
  for (int c = lane; c < d; c += 32) {
    row[c] = x[c];
    squares = fmaf(row[c], row[c], squares);
  }
  if (call.norm != nullptr) {
    const float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(d) + call.eps);
    for (int c = lane; c < d; c += 32) row[c] = row[c] * scale * call.norm[c];
  }
  __syncwarp();
  const int half = call.rotary_dim / 2;
  if (call.cos != nullptr) {
    for (int i = lane; i < half; i += 32) {
      const float cosine = call.cos[t * half + i];
      const float sine = call.sin[t * half + i];
      const float a = row[i];
      const float b = row[i + half];
      row[i] = a * cosine - b * sine;
      row[i + half] = b * cosine + a * sine;
    }
    __syncwarp();
  }
  bool is_finite = true;
  const std::int64_t to = (head * call.out_capacity + call.out_begin + t) * d;
  for (int c = lane; c < d; c += 32) {
    is_finite = is_finite && isfinite(row[c]);
    store(call.out, call.dtype == DType::bf16, to + c, row[c]);
  }
  if (call.bad != nullptr && !is_finite)
    atomicMin(call.bad, call.first_code + static_cast<BadPlace>(t));
}

__global__ void to_rows_kernel(HeadsToRows call, int n_tok) {
  take_turn();
  const std::int64_t t = blockIdx.x;
  const std::int64_t width = static_cast<std::int64_t>(call.n_q) * call.d_head;
  if (call.dtype == DType::bf16 && call.y_dtype == DType::bf16) {  // 16 bytes at a time
    const int n_parts = call.d_head / 8;
    for (int i = static_cast<int>(threadIdx.x); i < call.n_q * n_parts; i += kThreads) {
      const std::int64_t from = static_cast<std::int64_t>(i / n_parts) * n_tok + t;
      reinterpret_cast<uint4*>(call.y)[t * call.n_q * n_parts + i] =
          reinterpret_cast<const uint4*>(call.out)[from * n_parts + i % n_parts];
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
      const std::int64_t from = (i / call.d_head * n_tok + t) * call.d_head + i % call.d_head;
      store(call.y, call.y_dtype == DType::bf16, t * width + i,
            element(call.out, call.dtype == DType::bf16, from));
    }
  }
  for (std::int64_t head = threadIdx.x; head < call.n_q; head += kThreads) {
    const float lse = call.lse[head * n_tok + t];
    if (!isfinite(lse)) atomicMin(call.bad, call.first_code + static_cast<BadPlace>(t));
  }
}

__device__ __forceinline__ float silu(float x) {
  return x / (1.0f + expf(-x));
}
__device__ __forceinline__ float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}
__device__ __forceinline__ float gelu(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}

__device__ __forceinline__ float activated(Gate form, float gate, float up) {
  switch (form) {
    case Gate::silu:
      return silu(gate) * up;
    case Gate::gelu_tanh:
      return gelu_tanh(gate) * up;
    case Gate::gelu_alone:
      return gelu(up);
  }
  return 0.0f;
}

// Blocks along x have the values of a token, kEach of them a thread: 4 where rows allow it.
template <int kEach>
__global__ void activate_kernel(Gate form, const float* gate, const float* up, std::int64_t stride,
                                int n, void* hidden, bool is_half) {
  take_turn();
  const int f = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kEach;
  if (f >= n) return;
  const std::int64_t from = blockIdx.y * stride + f;
  const std::int64_t to = static_cast<std::int64_t>(blockIdx.y) * n + f;
  if constexpr (kEach == 4) {
    const float4 g = *reinterpret_cast<const float4*>(gate + from);
    const float4 u = *reinterpret_cast<const float4*>(up + from);
    const float a = activated(form, g.x, u.x), b = activated(form, g.y, u.y);
    const float c = activated(form, g.z, u.z), d = activated(form, g.w, u.w);
    if (is_half) {
      store_four(static_cast<Bf16*>(hidden) + to, a, b, c, d);
    } else {
      store_four(static_cast<float*>(hidden) + to, a, b, c, d);
    }
  } else {
    store(hidden, is_half, to, activated(form, gate[from], up[from]));
  }
}

// Four values a thread; blocks begin at multiples of 256 bytes.
__global__ void add_kernel(float* x, const float* y, std::int64_t count) {
  take_turn();
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 4;
  if (i + 4 <= count) {
    const float4 a = *reinterpret_cast<const float4*>(x + i);
    const float4 b = *reinterpret_cast<const float4*>(y + i);
    store_four(x + i, a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  } else {
    for (std::int64_t j = i; j < count; ++j) x[j] += y[j];
  }
}

__global__ void bias_kernel(float* y, std::int64_t stride, const float* bias, int n) {
  take_turn();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads)
    y[blockIdx.x * stride + i] += bias[i];
}

__global__ void round_kernel(const float* x, std::int64_t stride, int n, Bf16* halves) {
  take_turn();
  const int f = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (f < n)
    halves[static_cast<std::int64_t>(blockIdx.y) * n + f] =
        __float2bfloat16_rn(x[blockIdx.y * stride + f]);
}

__global__ void widen_kernel(const Bf16* halves, std::int64_t count, float* floats) {
  take_turn();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) floats[i] = __bfloat162float(halves[i]);
}

// Rows of tokens on their way to experts and back.
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

__global__ void word_kernel(std::int32_t* at, std::int32_t value) {
  wait_for_earlier_kernels();  // and writes a position: no take_turn()
  if (threadIdx.x == 0) *at = value;
}

}  // namespace

void embed_rows(const DeviceMatrix& embedding, const std::int32_t* tokens, int n_tok, float scale,
                float* x, StreamHandle stream) {
  start(stream, blocks_for(n_tok, 1), "start the embedding", embed_kernel, embedding, tokens, scale,
        x);
}

void norm_rows(const NormCall& call, int n_tok, StreamHandle stream) {
  const auto is_by_four = [](const void* rows, std::int64_t stride) {
    return reinterpret_cast<std::uintptr_t>(rows) % 16 == 0 && stride % 4 == 0;
  };
  const bool by_quads = call.n % 4 == 0 && call.n <= 32 * kThreads &&
                        is_by_four(call.x, call.x_stride) && is_by_four(call.y, call.y_stride) &&
                        is_by_four(call.weight, 0) && is_by_four(call.bias, 0) &&
                        is_by_four(call.added, 0) && is_by_four(call.halves, 0);
  if (!by_quads && call.added != nullptr)
    add_rows(call.x, call.added, static_cast<std::int64_t>(n_tok) * call.n, stream);
  const int n_each = (call.n + 4 * kThreads - 1) / (4 * kThreads);  // float4 of a thread
  start(stream, blocks_for(n_tok, 1), "start a norm",
        !by_quads     ? norm_kernel
        : n_each <= 1 ? norm_quads_kernel<1>
        : n_each <= 2 ? norm_quads_kernel<2>
        : n_each <= 4 ? norm_quads_kernel<4>
                      : norm_quads_kernel<8>,
        call);
}

void make_rope_rows(const float* frequencies, int n, float amplitude, std::int64_t pos_begin,
                    int n_tok, float* cos, float* sin, StreamHandle stream) {
  start(stream, blocks_for(n_tok, 1), "start RoPE's angles", rope_kernel, frequencies, n, amplitude,
        pos_begin, cos, sin);
}

void place_heads(std::span<const HeadsCall> calls, int n_tok, StreamHandle stream) {
  PlacedHeads placed = {};
  for (std::size_t i = 0; i < kMostPlaced; ++i) {
    if (i < calls.size()) {
      placed.calls[i] = calls[i];
      placed.n_heads += calls[i].n_heads;
      if (calls[i].d_head > kMostHead)
        throw ShapeError("the GPU backend: expected d_head of at most " +
                         std::to_string(kMostHead) + ", found " + std::to_string(calls[i].d_head));
    }
    placed.end[i] = placed.n_heads;
  }
  const std::int64_t n_rows = static_cast<std::int64_t>(n_tok) * placed.n_heads;
  start(stream, blocks_for(n_rows, kThreads / 32), "place heads", heads_kernel, placed, n_rows);
}

void heads_to_rows(const HeadsToRows& call, int n_tok, StreamHandle stream) {
  start(stream, blocks_for(n_tok, 1), "hand attention's rows on", to_rows_kernel, call, n_tok);
}

void activate_rows(Gate gate_form, const float* gate, const float* up, std::int64_t stride, int n,
                   int n_tok, void* hidden, DType dtype, StreamHandle stream) {
  const bool by_four = n % 4 == 0 && stride % 4 == 0;  // rows begin at multiples of 16 bytes
  start(stream, blocks_of_rows(by_four ? n / 4 : n, n_tok), "start an activation",
        by_four ? activate_kernel<4> : activate_kernel<1>, gate_form, gate, up, stride, n, hidden,
        dtype == DType::bf16);
}

void activate_clamped_rows(const float* gate_up, float alpha, float limit, int n, int n_tok,
                           void* hidden, DType dtype, StreamHandle stream) {
  const std::int64_t count = static_cast<std::int64_t>(n) * n_tok;
  start(stream, blocks_for(count), "start an expert's activation", clamped_kernel, gate_up, alpha,
        limit, count, hidden, dtype == DType::bf16);
}

void gather_rows(const float* x, std::int64_t x_stride, const std::int32_t* token, int n_rows,
                 int n, void* y, DType dtype, StreamHandle stream) {
  start(stream, blocks_for(n_rows, 1), "gather an expert's tokens", gather_kernel, x, x_stride,
        token, n, y, dtype == DType::bf16);
}

void scatter_rows(const float* x, const std::int32_t* token, const float* weight, int n_rows, int n,
                  float* y, std::int64_t y_stride, StreamHandle stream) {
  start(stream, blocks_for(n_rows, 1), "add an expert's answer", scatter_kernel, x, token, weight,
        n, y, y_stride);
}

void clear_rows(float* y, std::int64_t count, StreamHandle stream) {
  start(stream, blocks_for(count), "clear rows", clear_kernel, y, count);
}

void add_rows(float* x, const float* y, std::int64_t count, StreamHandle stream) {
  start(stream, blocks_for(count, 4 * kThreads), "start a sum", add_kernel, x, y, count);
}

void add_bias(float* y, std::int64_t stride, const float* bias, int n, int n_tok,
              StreamHandle stream) {
  start(stream, blocks_for(n_tok, 1), "add a bias", bias_kernel, y, stride, bias, n);
}

void round_rows(const float* x, std::int64_t stride, int n, int n_tok, void* halves,
                StreamHandle stream) {
  start(stream, blocks_of_rows(n, n_tok), "round to bf16", round_kernel, x, stride, n,
        static_cast<Bf16*>(halves));
}

void widen_rows(const void* halves, std::int64_t count, float* floats, StreamHandle stream) {
  start(stream, blocks_for(count), "widen bf16", widen_kernel, static_cast<const Bf16*>(halves),
        count, floats);
}

void set_word(std::int32_t* at, std::int32_t value, StreamHandle stream) {
  start(stream, 1, "set a position", word_kernel, at, value);
}

}  // namespace kvscope::gpu
