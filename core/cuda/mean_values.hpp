// The mean of all values of a layer on the device, which grows with the cache.
#pragma once

#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

/// One sequence; calls put kernels into the stream and return. Sums in f64 of stretches that begin
/// at fixed positions: a mean does not depend on how the values came.
class MeanValues {
 public:
  explicit MeanValues(const CallShape& shape);

  /// Of the values at [0, n_keys), of which the sums of the first n_known are there. v [n_kv,
  /// capacity, d_head]
  void compute(const void* v, int n_known, int n_keys, StreamHandle stream);

  const float* means() const { return means_; }  // [n_kv, d_head]

 private:
  CallShape shape_;
  DeviceBuffer memory_;
  double* sums_ = nullptr;  // [n_kv, stretches + 1, d_head] of all stretches before
  float* means_ = nullptr;
};

}  // namespace kvscope::gpu
