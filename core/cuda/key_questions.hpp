// What methods ask about keys and values on the device by themselves: how long a listed key is
// (Knorm's score), its cosine with the mean of all (KeyDiff's), products of a few vectors per KV
// head with all keys (scores that are linear in the query), sums of values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/cuda/attend.hpp"
#include "core/cuda/growing_buffer.hpp"

namespace kvscope::gpu {

/// The keys of a list per KV head (items null: all before the call), then the call's own.
struct CosineCall {
  DeviceRows rows;  // q and v are not looked at
  DeviceLists lists;
  int most_keys = 0;       // of any list, the call's own included
  bool takes_unit = true;  // the mean of unit keys, or of the keys as they are
  double eps = 1e-12;      // vectors are divided by at least this norm
};

/// Vectors [first, first + n) of each KV head's n_rows. rows [n_kv * n_rows, d_head] on the host.
struct ProductVectors {
  std::span<const float> rows;
  std::size_t n_rows = 0, first = 0, n = 0;
};

/// Scratch memory and the answers of the last call of each kind. One sequence; calls put kernels
/// into the stream and return.
class KeyQuestions {
 public:
  static constexpr std::size_t kMostVectors = 16;  // of a KV head at a time, of products()

  /// In f64. Keys are counted along the list. [n_kv, stride()]
  const double* cosines(const CallShape& shape, const CosineCall& call, StreamHandle stream);
  /// 1 / max(|k|, eps) of the keys alone. [n_kv, stride()]
  const double* inverse_norms(const CallShape& shape, const CosineCall& call, StreamHandle stream);
  /// In f32 of exact keys; equal keys get equal products. n_past: what rows.n_past holds.
  /// [n_kv, n, stride()]
  const float* products(const CallShape& shape, const DeviceRows& rows, int n_past,
                        const ProductVectors& vectors, StreamHandle stream);
  /// Of the values at [begin, end), in f64 and in the order of their positions. [n_kv, d_head]
  const double* value_sums(const CallShape& shape, const DeviceRows& rows, int begin, int end,
                           StreamHandle stream);
  /// most_keys of the last call; keys of the last products, rounded up to a multiple of four.
  std::int64_t stride() const { return stride_; }

 private:
  void run(const CallShape& shape, const CosineCall& call, bool needs_cosines, StreamHandle stream);

  GrowingBuffer inverse_norms_, parts_, means_, cosines_, vectors_, products_, sums_;
  std::int64_t stride_ = 0;
};

}  // namespace kvscope::gpu
