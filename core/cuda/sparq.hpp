// SparQ's choice of keys for a chunk on the device: the rules of core/selectors/methods/sparq.cpp
// for calls that are no decode steps (no local keys, no mean value).
#pragma once

#include <cstdint>

#include "core/cuda/attend.hpp"
#include "core/cuda/growing_buffer.hpp"

namespace kvscope::gpu {

struct SparqOptions {
  int budget = 1024;    // keys per KV head, beside the chunk
  int n_channels = 64;  // that score
};

/// Scratch memory, and the lists of the last choice. One sequence; calls put kernels into the
/// stream and return.
class Sparq {
 public:
  /// n_past: what rows.n_past holds. Channels and the mean query in f64, scores by f32 products;
  /// equal scores: the earlier key.
  void choose(const CallShape& shape, const SparqOptions& options, const DeviceRows& rows,
              int n_past, StreamHandle stream);

  /// The last choice, [n_kv, budget].
  DeviceLists lists() const { return lists_; }

 private:
  GrowingBuffer vectors_, scores_, items_, counts_;
  DeviceLists lists_;
};

}  // namespace kvscope::gpu
