// Attention in plain f32 arithmetic for what the fast kernels do not take: any d_head, sliding
// windows, learned sinks, soft caps, weighted lists and summaries. A query's numbers depend on no
// other query of the call.
#pragma once

#include <cstdint>

#include "core/cuda/layer_kernels.hpp"

namespace kvscope::gpu {

/// The lists of a Selection in device memory; keys null: every key that a query sees.
struct AnyLists {
  const std::int32_t* keys = nullptr;   // of all lists
  const std::int64_t* begin = nullptr;  // [n_lists + 1]
  const float* log_weight = nullptr;    // [n_keys] or null
  int rows_per_list = 1;
  int n_row_blocks = 1;
  int heads_per_owner = 1;  // query heads that a list serves
  /// Not null: begin is not looked at, and query head h has in row t a list of its own, number
  /// t * n_q + h, of counts[number] keys from number * stride on.
  const std::int32_t* counts = nullptr;
  std::int64_t stride = 0;
  bool adds_own = false;  // a query also sees the call's keys up to its own; lists end before them
};

/// Its summaries; begin null: there are none.
struct AnySummaries {
  const std::int64_t* begin = nullptr;  // [n_kv + 1]
  const float* k = nullptr;             // [n, d_head]
  const float* v = nullptr;             // [n, d_head]
  const float* log_count = nullptr;     // [n]
  const float* list_share = nullptr;    // [n_q, n_tok] or null
};

struct AnyAttention {
  const void* q = nullptr;  // [n_q, n_tok, d_head] of dtype
  const void* k = nullptr;  // [n_kv, capacity, d_head] of dtype, the call's own rows included
  const void* v = nullptr;
  DType dtype = DType::f32;
  std::int64_t capacity = 0;
  int n_q = 0;
  int n_kv = 0;
  int d_head = 0;  // even, at most 256
  int n_tok = 0;
  std::int64_t pos_begin = 0;
  float score_scale = 1.0f;
  float score_cap = 0.0f;              // 0: none
  std::int64_t window = 0;             // positions that a query sees; 0: all. Does not cut lists
  const float* sink_logits = nullptr;  // [n_q] or null
  AnyLists lists;
  AnySummaries summaries;
  float* out = nullptr;     // [n_tok, n_q * d_head]
  float* lse = nullptr;     // [n_q, n_tok], -infinity where a query had no key
  BadPlace* bad = nullptr;  // a log-sum-exp that is not finite is noted as first_code + t
  BadPlace first_code = 0;  // bad_place of token 0
};

/// As attend_lanes and attend_lists of core/attention define it. Throws ShapeError for other shapes
/// than those above.
void attend_any(const AnyAttention& call, StreamHandle stream);

}  // namespace kvscope::gpu
