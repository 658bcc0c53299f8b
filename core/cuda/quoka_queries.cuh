// QuoKA's first step on the device, and the norms of new keys.
#pragma once

#include "core/cuda/call_shape.hpp"
#include "core/cuda/device.hpp"

namespace kvscope::gpu {

/// Arguments of choose_queries. Per query head: the rows of lowest cosine with the mean row, lowest
/// first, as unit vectors divided by the group's size; a slot is the sum over the group's heads.
struct QueryChoice {
  const void* q = nullptr;  // [n_batch, n_q, n_tok, d_head]
  int n_tok = 0;
  int n_queries = 16;
  double eps = 0.0;
  float* vectors = nullptr;           // [n_batch, n_q, 16, d_head]; [n_slots, 16) are not written
  std::int32_t* picks = nullptr;      // [n_batch, n_q, 16]
  std::int32_t* histogram = nullptr;  // [n_batch, n_kv, kBuckets], cleared for the scores to come
  const void* k = nullptr;            // [n_batch, n_kv, capacity, d_head]: the call's own keys
  const std::int32_t* n_past = nullptr;  // [n_batch] begin there
  float* inverse_norms = nullptr;        // [n_batch, n_kv, capacity] and their norms go there
};
void choose_queries(const CallShape& shape, const QueryChoice& choice, StreamHandle stream);

/// inverse_norms [n_batch, n_kv, capacity] = 1 / max(|k|, eps) at positions n_past to n_past +
/// n_tok.
void append_norms(const CallShape& shape, const void* k, const std::int32_t* n_past, int n_tok,
                  double eps, float* inverse_norms, StreamHandle stream);

}  // namespace kvscope::gpu
