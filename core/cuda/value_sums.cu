#include "core/cuda/value_sums.hpp"

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

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

const double* ValueSums::compute(const CallShape& shape, const DeviceRows& rows, int begin, int end,
                                 StreamHandle stream) {
  check_shape(shape);
  Sums call;
  call.v = rows.v;
  call.capacity = shape.capacity;
  call.begin = begin;
  call.end = end;
  call.sums = sums_.room<double>(std::int64_t{shape.n_kv} * shape.d_head, "the sums of values");
  Launch how;
  how.grid = dim3(static_cast<unsigned>(shape.n_kv));
  how.threads = shape.d_head;
  launch(stream, how, "start the sums of values",
         shape.dtype == Dtype::bf16 ? value_sums_kernel<Bf16> : value_sums_kernel<float>, call);
  return call.sums;
}

}  // namespace kvscope::gpu
