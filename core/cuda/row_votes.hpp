// What chosen rows of a call attend to on the device, added up per key: the votes of methods that
// keep keys by exact attention.
#pragma once

#include <cstdint>

#include "core/cuda/attend.hpp"
#include "core/cuda/growing_buffer.hpp"

namespace kvscope::gpu {

/// Rows [first_row, end_row) of a call, and the keys that they meet: those of a list per KV head
/// (items null: all before the call), then the call's own.
struct VoteCall {
  DeviceRows rows;
  DeviceLists lists;
  int most_keys = 0;  // of any list, the call's own included
  int first_row = 0;
  int end_row = 0;
  std::int64_t most_bytes = std::int64_t{128} << 20;  // of scores at a time: at least one row's
  /// Whose votes are summed: of all rows those of each KV head, or of each row those of all heads.
  enum class Of { kv_heads, rows } of = Of::kv_heads;
};

/// Which keys a row keeps: the `budget` of largest score, of equal ones the earlier; or without a
/// budget those of at least a weight, or the fewest that hold a share of all weights.
struct BestRule {
  int budget = 0;
  double least_weight = 0.0;
  double mass = 0.0;
  bool before_call = false;  // of the keys before the call; else of those up to the row's own
};

/// Rows [first_row, end_row) of a call in one query head.
struct HeadRows {
  int q_head = 0;
  int first_row = 0;
  int end_row = 0;
};

/// Scratch memory and the votes of the last call. One sequence; calls put kernels into the stream
/// and return.
class RowVotes {
 public:
  /// The softmax weights of every key, over what each row sees, summed as call.of says. Keys are
  /// counted along the list. [n_kv or n_rows, stride()]
  float* sum(const CallShape& shape, const VoteCall& call, StreamHandle stream);
  /// The scores of these rows with every key of the context; -infinity where one is not seen.
  /// n_past: what rows.n_past holds. [end_row - first_row, n_past + rows.n_tok]
  const float* scores(const CallShape& shape, const DeviceRows& rows, int n_past,
                      const HeadRows& of, StreamHandle stream);
  /// Lists by the exact attention of every row and query head. n_past: what rows.n_past holds.
  /// [n_tok, n_q, stride]
  DeviceLists best(const CallShape& shape, const DeviceRows& rows, int n_past, const BestRule& rule,
                   StreamHandle stream);
  /// most_keys of the last call, rounded up to a multiple of four.
  std::int64_t stride() const { return stride_; }

 private:
  GrowingBuffer scores_, extremes_, weights_;
  GrowingBuffer competing_, items_, counts_;  // of best()
  std::int64_t stride_ = 0;
};

}  // namespace kvscope::gpu
