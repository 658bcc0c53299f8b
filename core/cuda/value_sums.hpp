// Sums of values on the device, in the order of their positions.
#pragma once

#include "core/cuda/attend.hpp"
#include "core/cuda/growing_buffer.hpp"

namespace kvscope::gpu {

/// Scratch memory and the sums of the last call. One sequence; calls put kernels into the stream
/// and return.
class ValueSums {
 public:
  /// Of the values at [begin, end), in f64. [n_kv, d_head]
  const double* compute(const CallShape& shape, const DeviceRows& rows, int begin, int end,
                        StreamHandle stream);

 private:
  GrowingBuffer sums_;
};

}  // namespace kvscope::gpu
