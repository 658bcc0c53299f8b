// Cosines: a warp per key, whose lanes hold its channels; blocks add up their keys, and one block
// per KV head adds up the blocks, all in the order of the keys.
#include "core/cuda/key_questions.hpp"

#include <algorithm>
#include <vector>

#include "core/cuda/key_list.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/row_scores.cuh"

namespace kvscope::gpu {

namespace {

constexpr const char* kUse = "the cosines of keys";
constexpr int kWarps = 8;
constexpr int kKeysPerWarp = 32;
constexpr int kKeys = kWarps * kKeysPerWarp;  // of a block

struct Cosines {
  ListSource list;
  const void* k;  // [n_kv, capacity, d_head]
  std::int64_t capacity;
  std::int64_t stride;  // of inverse_norms and cosines
  int n_parts;          // blocks of a KV head
  bool takes_unit;
  double eps;
  double* inverse_norms;  // [n_kv, stride]
  double* parts;          // [n_kv, n_parts, d_head]
  double* means;          // [n_kv, d_head] of length 1, or shorter than eps
  double* cosines;        // [n_kv, stride]
};

template <class T, int kWidth>
__device__ __forceinline__ void load_key(const Cosines& call, const KeyList& keys, int kv_head,
                                         int key, float (&part)[kWidth / 32]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = kv_head * call.capacity + keys.position(key);
  load_row_part(static_cast<const T*>(call.k) + row * kWidth + lane * (kWidth / 32), part);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kWarps * 32) mean_parts_kernel(Cosines call) {
  take_turn();
  constexpr int kEach = kWidth / 32;  // channels of a lane
  __shared__ double of_warp[kWarps][kWidth];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const KeyList keys(call.list, /*batch=*/0, kv_head);
  const int first = static_cast<int>(blockIdx.x) * kKeys + warp * kKeysPerWarp;
  const int end = min(first + kKeysPerWarp, keys.n_keys);
  double sum[kEach] = {};
  for (int key = first; key < end; ++key) {
    float x[kEach];
    load_key<T, kWidth>(call, keys, kv_head, key, x);
    double square = 0.0;
#pragma unroll
    for (int c = 0; c < kEach; ++c) square += static_cast<double>(x[c]) * static_cast<double>(x[c]);
    const double inverse = 1.0 / fmax(sqrt(warp_sum(square)), call.eps);
    if (lane == 0) call.inverse_norms[kv_head * call.stride + key] = inverse;
    const double weight = call.takes_unit ? inverse : 1.0;
#pragma unroll
    for (int c = 0; c < kEach; ++c) sum[c] += weight * static_cast<double>(x[c]);
  }
#pragma unroll
  for (int c = 0; c < kEach; ++c) of_warp[warp][lane * kEach + c] = sum[c];
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < kWidth; c += kWarps * 32) {
    double whole = 0.0;
    for (int w = 0; w < kWarps; ++w) whole += of_warp[w][c];
    const std::int64_t part = static_cast<std::int64_t>(kv_head) * call.n_parts + blockIdx.x;
    call.parts[part * kWidth + c] = whole;
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kWidth) mean_kernel(Cosines call) {
  take_turn();
  __shared__ double of_warp[kWidth / 32];
  const int kv_head = static_cast<int>(blockIdx.x);
  const int c = static_cast<int>(threadIdx.x);
  const KeyList keys(call.list, /*batch=*/0, kv_head);
  double sum = 0.0;
  for (int part = 0; part < call.n_parts; ++part)
    sum += call.parts[(static_cast<std::int64_t>(kv_head) * call.n_parts + part) * kWidth + c];
  const double square = warp_sum(sum * sum);
  if (c % 32 == 0) of_warp[c / 32] = square;
  __syncthreads();
  double whole = 0.0;
  for (int w = 0; w < kWidth / 32; ++w) whole += of_warp[w];
  call.means[kv_head * kWidth + c] = sum / fmax(sqrt(whole), call.eps * keys.n_keys);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kWarps * 32) cosines_kernel(Cosines call) {
  take_turn();
  constexpr int kEach = kWidth / 32;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const KeyList keys(call.list, /*batch=*/0, kv_head);
  const int first = static_cast<int>(blockIdx.x) * kKeys + warp * kKeysPerWarp;
  const int end = min(first + kKeysPerWarp, keys.n_keys);
  double mean[kEach];
#pragma unroll
  for (int c = 0; c < kEach; ++c) mean[c] = call.means[kv_head * kWidth + lane * kEach + c];
  for (int key = first; key < end; ++key) {
    float x[kEach];
    load_key<T, kWidth>(call, keys, kv_head, key, x);
    double product = 0.0;
#pragma unroll
    for (int c = 0; c < kEach; ++c) product += mean[c] * static_cast<double>(x[c]);
    product = warp_sum(product);
    const std::int64_t at = kv_head * call.stride + key;
    if (lane == 0) call.cosines[at] = product * call.inverse_norms[at];
  }
}

template <class T, int kWidth>
void start(const CallShape& shape, const Cosines& call, bool needs_cosines, StreamHandle stream) {
  const char* const what = "start the cosines of keys";
  const Launch how{{call.n_parts, shape.n_kv}, kWarps * 32};
  launch(stream, how, what, mean_parts_kernel<T, kWidth>, call);
  if (!needs_cosines) return;
  launch(stream, {{shape.n_kv}, kWidth}, what, mean_kernel<kWidth>, call);
  launch(stream, how, what, cosines_kernel<T, kWidth>, call);
}

struct Sums {
  const void* v;  // [n_kv, capacity, d_head]
  std::int64_t capacity;
  int begin, end;
  double* sums;  // [n_kv, d_head]
};

/// A thread per channel.
template <class T>
__global__ void value_sums_kernel(Sums call) {
  take_turn();
  const int kv_head = static_cast<int>(blockIdx.x);
  const auto c = static_cast<std::int64_t>(threadIdx.x);
  const std::int64_t width = blockDim.x;
  const T* const v = static_cast<const T*>(call.v) + kv_head * call.capacity * width + c;
  double sum = 0.0;
  for (int row = call.begin; row < call.end; ++row)
    sum += static_cast<double>(to_float(v[row * width]));
  call.sums[kv_head * width + c] = sum;
}

}  // namespace

const double* KeyQuestions::cosines(const CallShape& shape, const CosineCall& of,
                                    StreamHandle stream) {
  run(shape, of, /*needs_cosines=*/true, stream);
  return cosines_.room<double>(shape.n_kv * stride_, kUse);
}

const double* KeyQuestions::inverse_norms(const CallShape& shape, const CosineCall& of,
                                          StreamHandle stream) {
  run(shape, of, /*needs_cosines=*/false, stream);
  return inverse_norms_.room<double>(shape.n_kv * stride_, kUse);
}

void KeyQuestions::run(const CallShape& shape, const CosineCall& of, bool needs_cosines,
                       StreamHandle stream) {
  check_shape(shape);
  stride_ = of.most_keys;
  Cosines call;
  call.list = {of.lists, of.rows.n_past, of.rows.n_tok, /*log2_page=*/0, /*adds_own=*/true};
  call.k = of.rows.k;
  call.capacity = shape.capacity;
  call.stride = stride_;
  call.n_parts = (of.most_keys + kKeys - 1) / kKeys;
  call.takes_unit = of.takes_unit;
  call.eps = of.eps;
  const std::int64_t n_kv = shape.n_kv;
  call.inverse_norms = inverse_norms_.room<double>(n_kv * stride_, kUse);
  call.parts = parts_.room<double>(n_kv * call.n_parts * shape.d_head, kUse);
  call.means = means_.room<double>(n_kv * shape.d_head, kUse);
  call.cosines = needs_cosines ? cosines_.room<double>(n_kv * stride_, kUse) : nullptr;
  with_types(shape,
             [&]<class T, int kWidth>() { start<T, kWidth>(shape, call, needs_cosines, stream); });
}

const float* KeyQuestions::products(const CallShape& shape, const DeviceRows& rows, int n_past,
                                    const ProductVectors& vectors, StreamHandle stream) {
  static_assert(kMostVectors == gpu::kMostVectors);
  constexpr const char* kProducts = "products with keys";
  check_shape(shape);
  const auto d = static_cast<std::size_t>(shape.d_head);
  const auto n_kv = static_cast<std::size_t>(shape.n_kv);
  std::vector<float> padded(n_kv * kMostVectors * d);
  for (std::size_t kv_head = 0; kv_head < n_kv; ++kv_head) {
    const auto from = vectors.rows.subspan((kv_head * vectors.n_rows + vectors.first) * d);
    std::copy_n(from.begin(), vectors.n * d,
                padded.begin() + static_cast<std::ptrdiff_t>(kv_head * kMostVectors * d));
  }
  stride_ = (std::int64_t{n_past} + rows.n_tok + 3) / 4 * 4;
  RowScores scoring;
  scoring.rows = rows.k;
  scoring.capacity = shape.capacity;
  scoring.dtype = shape.dtype;
  scoring.width = shape.d_head;
  scoring.n_kv = shape.n_kv;
  scoring.vectors = vectors_.upload(padded.data(), padded.size(), kProducts, stream);
  scoring.n_vectors = static_cast<int>(vectors.n);
  scoring.n_past = rows.n_past;
  scoring.n_more = rows.n_tok;
  scoring.reduce = Reduce::each;
  scoring.scores =
      products_.room<float>(static_cast<std::int64_t>(n_kv * vectors.n) * stride_, kProducts);
  scoring.stride = stride_;
  score_rows(scoring, stream);
  return scoring.scores;
}

const double* KeyQuestions::value_sums(const CallShape& shape, const DeviceRows& rows, int begin,
                                       int end, StreamHandle stream) {
  check_shape(shape);
  Sums call;
  call.v = rows.v;
  call.capacity = shape.capacity;
  call.begin = begin;
  call.end = end;
  call.sums = sums_.room<double>(std::int64_t{shape.n_kv} * shape.d_head, "the sums of values");
  launch(stream, {{shape.n_kv}, shape.d_head}, "start the sums of values",
         shape.dtype == DType::bf16 ? value_sums_kernel<Bf16> : value_sums_kernel<float>, call);
  return call.sums;
}

}  // namespace kvscope::gpu
