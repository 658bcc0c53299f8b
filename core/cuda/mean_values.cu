#include "core/cuda/mean_values.hpp"

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/scratch.hpp"

namespace kvscope::gpu {

namespace {

constexpr int kStretch = 256;  // values
constexpr int kWarps = 8;

struct Values {
  const void* v;  // [n_kv, capacity, d_head]
  std::int64_t capacity;
  int n_keys;
  double* sums;  // [n_kv, n_places, d_head]
  int n_places;
  float* means;
};

/// The block's sum of rows [begin, end), in one order: thread c has that of channel c.
template <class T, int kWidth>
__device__ double sum_rows(const T* v, int begin, int end) {
  constexpr int kEach = kWidth / 32;
  __shared__ double of_warp[kWarps][kWidth];
  const int thread = static_cast<int>(threadIdx.x);
  const int first = thread % 32 * kEach;
  double own[kEach] = {};
#pragma unroll 8
  for (int row = begin + thread / 32; row < end; row += kWarps) {
    float x[kEach];
    load_row_part(v + static_cast<std::int64_t>(row) * kWidth + first, x);
#pragma unroll
    for (int i = 0; i < kEach; ++i) own[i] += static_cast<double>(x[i]);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) of_warp[thread / 32][first + i] = own[i];
  __syncthreads();
  double sum = 0.0;
  for (int w = 0; thread < kWidth && w < kWarps; ++w) sum += of_warp[w][thread];
  return sum;
}

/// A block per stretch: its own sum, at the place behind it.
template <class T, int kWidth>
__global__ void __launch_bounds__(kWarps * 32) sum_stretches_kernel(Values call, int first) {
  take_turn();
  const int stretch = first + static_cast<int>(blockIdx.y);
  const std::int64_t kv_head = blockIdx.x;
  const double sum =
      sum_rows<T, kWidth>(static_cast<const T*>(call.v) + kv_head * call.capacity * kWidth,
                          stretch * kStretch, (stretch + 1) * kStretch);
  if (threadIdx.x < kWidth)
    call.sums[(kv_head * call.n_places + stretch + 1) * kWidth + threadIdx.x] = sum;
}

/// Sums of stretches become sums of all that are before.
__global__ void add_stretches_kernel(Values call, int first, int end) {
  take_turn();
  double* const at = call.sums + static_cast<std::int64_t>(blockIdx.x) * call.n_places * blockDim.x;
  const int width = static_cast<int>(blockDim.x);
  const int c = static_cast<int>(threadIdx.x);
  double sum = first == 0 ? 0.0 : at[first * width + c];
  if (first == 0) at[c] = 0.0;
#pragma unroll 8
  for (int stretch = first; stretch < end; ++stretch) {
    sum += at[(stretch + 1) * width + c];
    at[(stretch + 1) * width + c] = sum;
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kWarps * 32) mean_values_kernel(Values call) {
  take_turn();
  const std::int64_t kv_head = blockIdx.x;
  const int n_whole = call.n_keys / kStretch;
  const double rest =
      sum_rows<T, kWidth>(static_cast<const T*>(call.v) + kv_head * call.capacity * kWidth,
                          n_whole * kStretch, call.n_keys);
  const int c = static_cast<int>(threadIdx.x);
  if (c >= kWidth) return;
  const double whole =
      n_whole == 0 ? 0.0 : call.sums[(kv_head * call.n_places + n_whole) * kWidth + c];
  call.means[kv_head * kWidth + c] = static_cast<float>((whole + rest) / call.n_keys);
}

template <class T, int kWidth>
void start(const Values& call, int n_kv, int first, int end, StreamHandle stream) {
  Launch how;
  how.threads = kWarps * 32;
  if (first < end) {
    how.grid = dim3(static_cast<unsigned>(n_kv), static_cast<unsigned>(end - first));
    launch(stream, how, "start the sums of values", sum_stretches_kernel<T, kWidth>, call, first);
    how.grid = dim3(static_cast<unsigned>(n_kv));
    how.threads = kWidth;
    launch(stream, how, "start adding sums", add_stretches_kernel, call, first, end);
    how.threads = kWarps * 32;
  }
  how.grid = dim3(static_cast<unsigned>(n_kv));
  launch(stream, how, "start the mean of values", mean_values_kernel<T, kWidth>, call);
}

int places_of(const CallShape& shape) {
  return static_cast<int>(shape.capacity / kStretch) + 1;
}

}  // namespace

MeanValues::MeanValues(const CallShape& shape) : shape_(shape) {
  check_shape(shape);
  const auto width = static_cast<std::size_t>(shape.n_kv * shape.d_head);
  const auto lay_out = [&](Scratch plan) {
    sums_ = plan.add<double>(static_cast<std::size_t>(places_of(shape)) * width);
    means_ = plan.add<float>(width);
    return plan.size();
  };
  memory_ = DeviceBuffer(lay_out(Scratch()), "the sums of values");
  lay_out(Scratch(memory_.data()));
}

void MeanValues::compute(const void* v, int n_known, int n_keys, StreamHandle stream) {
  Values call;
  call.v = v;
  call.capacity = shape_.capacity;
  call.n_keys = n_keys;
  call.sums = sums_;
  call.n_places = places_of(shape_);
  call.means = means_;
  const auto begin = shape_.dtype == Dtype::bf16
                         ? (shape_.d_head == 64 ? start<Bf16, 64> : start<Bf16, 128>)
                         : (shape_.d_head == 64 ? start<float, 64> : start<float, 128>);
  begin(call, shape_.n_kv, n_known / kStretch, n_keys / kStretch, stream);
}

}  // namespace kvscope::gpu
