// A made-up attention problem for measuring speed: seeded queries, keys and values of any shape,
// with a sink and topics, so that scores are as uneven as a model's.
#pragma once

#include <cstdint>

#include "core/attention/question.hpp"
#include "core/base/parallel.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope::cli {

/// What is asked for.
struct WorkloadShape {
  Index n_q = 24;
  Index n_kv = 8;
  Index d_head = 128;
  Index n_tokens = 4096;  // keys and values
  Index n_queries = 128;  // queries per head, for the last positions of any context
  std::uint64_t seed = 1;
};

/// Keys come in runs of one topic each, every query asks for one topic and for key 0 (the sink);
/// the rest is noise. The same numbers for every thread count, and a key's do not depend on
/// n_tokens.
struct Workload {
  Workload(const WorkloadShape& shape, ThreadPool& pool);
  Tensor<float> q;                           // [n_q, n_queries, d_head]
  Tensor<float> k;                           // [n_kv, n_tokens, d_head]
  Tensor<float> v;                           // [n_kv, n_tokens, d_head]
  Tensor<std::uint16_t> k_halves, v_halves;  // the same in bf16 after round_to_bf16()

  /// Keys and values as a cache in bf16 holds them; k and v become these values.
  void round_to_bf16();
  HalfRows halves(Index n_tokens) const;  // of the first n_tokens; none before round_to_bf16()
};

}  // namespace kvscope::cli
