// Products of a few vectors per KV head with all keys of a call on the device: what methods score
// by that are linear in the query.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/cuda/attend.hpp"
#include "core/cuda/growing_buffer.hpp"

namespace kvscope::gpu {

/// Vectors [first, first + n) of each KV head's n_rows. rows [n_kv * n_rows, d_head] on the host.
struct ProductVectors {
  std::span<const float> rows;
  std::size_t n_rows = 0, first = 0, n = 0;
};

/// Scratch memory and the products of the last call. One sequence; calls put kernels into the
/// stream and return.
class KeyProducts {
 public:
  static constexpr std::size_t kMost = 16;  // vectors of a KV head at a time

  /// In f32 of exact keys; equal keys get equal products. n_past: what rows.n_past holds.
  /// [n_kv, n, stride()]
  const float* compute(const CallShape& shape, const DeviceRows& rows, int n_past,
                       const ProductVectors& vectors, StreamHandle stream);
  /// Keys of the last call, rounded up to a multiple of four.
  std::int64_t stride() const { return stride_; }

 private:
  GrowingBuffer vectors_, products_;
  std::int64_t stride_ = 0;
};

}  // namespace kvscope::gpu
