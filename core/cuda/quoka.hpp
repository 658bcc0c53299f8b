// QuoKA on the device: choice of keys for a chunk (or a decode step) of a batch, and attention to
// them. The rules are those of core/selectors/methods/quoka.cpp with scope=past and its other
// defaults.
#pragma once

#include "core/cuda/attend.hpp"
#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

class Scratch;

struct QuokaOptions {
  int n_queries = 16;  // N_Q, at most 16
  int budget = 1024;   // keys per KV head, beside the chunk
  int most_tok = 128;  // longest chunk, at most 1024
  double eps = 1e-12;
};

/// One layer's state: key norms and scratch memory, planned when it is made. Calls put kernels into
/// the stream and return; none of them waits. Order: choose, attend.
class Quoka {
 public:
  /// Where choose() ends; what the later steps make is not to be used then. For measurements.
  enum class Step { queries, scores, lists };

  Quoka(const CallShape& shape, const QuokaOptions& options);

  /// What the constructor will ask for.
  static std::size_t device_bytes(const CallShape& shape, const QuokaOptions& options);

  /// Notes the norms of keys at positions n_past to n_past + n_tok that no choose() had as its own.
  void append(const void* k, const std::int32_t* n_past, int n_tok, StreamHandle stream);

  /// Chooses the keys before the call that its queries attend to, and notes its own keys' norms.
  /// Queries by f64 cosines, key scores by f32 products and sums; equal scores: the earlier key.
  void choose(const DeviceRows& rows, StreamHandle stream, Step last = Step::lists);

  /// The last choice, [n_batch, n_kv, budget], to which attend() adds the causal part of the chunk.
  DeviceLists lists() const;
  const std::int32_t* picks() const { return at_.picks; }  // [n_batch, n_q, 16] rows of the chunk
  const CallShape& shape() const { return shape_; }

 private:
  CallShape shape_;
  QuokaOptions options_;
  DeviceBuffer memory_;
  struct Arrays {
    float* inverse_norms = nullptr;     // [n_batch, n_kv, capacity]
    float* scores = nullptr;            // [n_batch, n_kv, capacity]
    float* vectors = nullptr;           // [n_batch, n_q, 16, d_head] each head's share of the slots
    std::int32_t* picks = nullptr;      // [n_batch, n_q, 16]
    std::int32_t* histogram = nullptr;  // [n_batch, n_kv, kBuckets]
    std::int32_t* items = nullptr;      // [n_batch, n_kv, budget]
    std::int32_t* counts = nullptr;     // [n_batch, n_kv]
  };
  static Arrays lay_out(Scratch& plan, const CallShape& shape, const QuokaOptions& options);
  Arrays at_;
};

}  // namespace kvscope::gpu
