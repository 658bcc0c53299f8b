// SparQ's choice of keys on the device, by the rules of core/selectors/methods/sparq.cpp: for
// chunks, and for decode steps with their latest keys and the mean value.
#pragma once

#include <cstdint>

#include "core/cuda/attend.hpp"
#include "core/cuda/growing_buffer.hpp"

namespace kvscope::gpu {

struct SparqOptions {
  int budget = 1024;    // keys per KV head, beside the chunk
  int n_channels = 64;  // that score
  int n_latest = 0;     // of the budget: the keys just before the call
  /// Of a call of one query with at most kMostVectors - 1 query heads per KV head: shares() are
  /// found, too.
  bool finds_shares = false;
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

  /// [n_q]: which share of the approximate weights the list and the query's own key have.
  const float* shares() const { return shares_; }
  /// out [n_q, 1, d_head] becomes share * out + (1 - share) * mean of its KV head.
  void mix(const CallShape& shape, const float* means, void* out, StreamHandle stream) const;

 private:
  GrowingBuffer vectors_, scores_, items_, counts_, competing_, keys_, key_counts_;
  /// scores [n_kv, 1 + group, stride]: the mean query's, then each head's.
  void find_shares(const CallShape& shape, const float* scores, std::int64_t stride,
                   const std::int32_t* n_past, StreamHandle stream);

  GrowingBuffer share_memory_;
  float* shares_ = nullptr;
  DeviceLists lists_;
};

}  // namespace kvscope::gpu
