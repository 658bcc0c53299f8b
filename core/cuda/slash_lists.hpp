// Lists of columns and diagonals on the device: what minference-vertical-slash keeps, by the rules
// of core/selectors/methods/minference_vertical_slash.cpp.
#pragma once

#include "core/cuda/attend.hpp"
#include "core/cuda/growing_buffer.hpp"
#include "core/cuda/row_votes.hpp"

namespace kvscope::gpu {

struct SlashOptions {
  int n_voters = 64;     // last queries of the call
  int n_columns = 1000;  // keys that every query keeps
  int n_slashes = 6096;  // distances from the query that it keeps
  int n_first = 30;      // first columns that come before all others
  int n_near = 100;      // smallest distances that do
};

/// Scratch memory and the lists of the last choice. One sequence; calls put kernels into the stream
/// and return.
class SlashLists {
 public:
  /// A list for each row and query head, [n_tok, n_q, stride]: keys whose column is among the best
  /// by the voters' softmax weights, or whose distance is. Equal sums: the earlier column, the
  /// smaller distance. n_past: what rows.n_past holds.
  DeviceLists choose(const CallShape& shape, const SlashOptions& options, const DeviceRows& rows,
                     int n_past, StreamHandle stream);

 private:
  RowVotes votes_;
  GrowingBuffer n_context_, columns_, slashes_, counts_, items_, item_counts_;
};

}  // namespace kvscope::gpu
