// Shapes of one layer's attention on the device, for a batch of sequences, and the lists between
// choosing keys and attending to them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor/dtype.hpp"

namespace kvscope::gpu {

/// What stays the same for all calls of a layer. Sequence b of the batch has n_past[b] keys
/// before the call (device memory, so that a graph can be started again while they grow) and
/// n_tok own ones.
///   q, out  [n_batch, n_q, n_tok, d_head]       of dtype
///   k, v    [n_batch, n_kv, capacity, d_head]   of dtype, the call's own rows already written
///   lse     [n_batch, n_q, n_tok]               f32, -infinity where a query saw no key
struct CallShape {
  int n_batch = 1;
  int n_q = 0;
  int n_kv = 0;
  int d_head = 0;             // 64 or 128; of attend.hpp's kernel `rows` also 256
  std::int64_t capacity = 0;  // rows that k and v have place for
  DType dtype = DType::bf16;  // or f32
  float score_scale = 1.0f;

  int group() const { return n_q / n_kv; }
};

/// Throws ShapeError unless the kernels take these shapes.
void check_shape(const CallShape& shape, bool takes_256 = false);

/// Lists of keys or of whole pages on the device: one per owner and sequence, ascending.
struct DeviceLists {
  /// [n_batch, n_owners, stride]; keys, or pages of page_size keys.
  const std::int32_t* items = nullptr;
  const std::int32_t* counts = nullptr;  // [n_batch, n_owners]
  int stride = 0;
  int n_owners = 0;  // n_kv: a list serves its KV head's group; n_q: each query head has its own
  int page_size = 1;
};

}  // namespace kvscope::gpu
