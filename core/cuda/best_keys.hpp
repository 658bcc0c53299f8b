// The keys of largest exact attention on the device: what oracle-topk, oracle-topp and ceiling
// keep, by the rules of core/selectors/methods.
#pragma once

#include <cstdint>

#include "core/attention/list_plan.hpp"
#include "core/cuda/attend.hpp"
#include "core/cuda/growing_buffer.hpp"
#include "core/cuda/row_votes.hpp"

namespace kvscope::gpu {

struct BestKeysOptions {
  int budget = 1024;
  /// Above 0, per query head: no budget, but all keys of at least that weight, or the fewest that
  /// hold that share. Such lists have room for every key.
  double least_weight = 0.0;
  double mass = 0.0;
  /// Per query head by scores; per KV head by the sum or the largest of its heads' softmax weights.
  ListPlan::Owner owner = ListPlan::Owner::q_head;
  bool forces_own = false;  // only keys before the call compete; its own are not in the lists
  bool joins_rows = false;  // one list per KV head by the rows' sum, with forces_own and group_sum
  std::int64_t most_bytes = std::int64_t{128} << 20;  // of scores at a time: at least one row's

  bool has_budget() const { return least_weight == 0.0 && mass == 0.0; }
};

/// Scratch memory, and the lists of the last choice. One sequence; calls put kernels into the
/// stream and return.
class BestKeys {
 public:
  /// n_past: what rows.n_past holds. Scores by f32 products; equal ones: the earlier key.
  void choose(const CallShape& shape, const BestKeysOptions& options, const DeviceRows& rows,
              int n_past, StreamHandle stream);

  /// The last choice, [n_row_blocks(), n_owners, stride].
  DeviceLists lists() const { return lists_; }
  /// 1 with joins_rows, else each row has lists of its own.
  int n_row_blocks() const { return n_row_blocks_; }
  /// Of device memory that lists without a budget take.
  static std::int64_t bytes_of_all(int n_q, int n_tok, int n_past) {
    return std::int64_t{n_q} * n_tok * (n_past + n_tok) * std::int64_t{sizeof(std::int32_t)};
  }

 private:
  GrowingBuffer scores_, extremes_, weights_, competing_, items_, counts_;
  RowVotes votes_;
  DeviceLists lists_;
  int n_row_blocks_ = 0;
};

}  // namespace kvscope::gpu
