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
  /// Whose votes are summed: of all rows those of each KV head or query head; or of each row those
  /// of all heads.
  enum class Of { kv_heads, q_heads, rows } of = Of::kv_heads;
  bool adds_distances = false;  // of heads: behind the votes of keys those of distances
};

/// Scratch memory and the votes of the last call. One sequence; calls put kernels into the stream
/// and return.
class RowVotes {
 public:
  /// The softmax weights of every key, over what each row sees, summed as call.of says. Keys are
  /// counted along the list. [n_kv, n_q or n_rows, stride()]; of distances from the rows' own keys,
  /// the same again.
  float* sum(const CallShape& shape, const VoteCall& call, StreamHandle stream);
  /// most_keys of the last call, rounded up to a multiple of four.
  std::int64_t stride() const { return stride_; }

 private:
  GrowingBuffer scores_, extremes_, weights_;
  std::int64_t stride_ = 0;
};

}  // namespace kvscope::gpu
