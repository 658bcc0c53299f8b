// The pages of largest exact attention on the device: what oracle-pages keeps, by the rules of
// core/selectors/page_lists.hpp.
#pragma once

#include "core/attention/list_plan.hpp"
#include "core/cuda/attend.hpp"
#include "core/cuda/growing_buffer.hpp"
#include "core/cuda/row_votes.hpp"

namespace kvscope::gpu {

struct BestPagesOptions {
  int page_size = 16;  // a power of two
  int budget = 1024;   // in keys
  ListPlan::Pages pages = ListPlan::Pages::kernel;
  ListPlan::Owner owner = ListPlan::Owner::q_head;  // of steps
};

/// Scratch memory and the lists of the last choice. One sequence; calls put kernels into the stream
/// and return. n_past: what rows.n_past holds.
class BestPages {
 public:
  /// Pages for one query, its own key among the context's. Equal pages: the earlier one.
  DeviceLists choose(const CallShape& shape, const BestPagesOptions& options,
                     const DeviceRows& rows, int n_past, StreamHandle stream);
  /// Keys for the rows of a chunk or a verification: whole pages before the call, one list per KV
  /// head by all rows and heads, and the keys of the page that the call's first token cuts.
  /// options.owner does not matter.
  DeviceLists choose_before(const CallShape& shape, const BestPagesOptions& options,
                            const DeviceRows& rows, int n_past, StreamHandle stream);

 private:
  /// What each owner's pages get, [n_owners, page_stride_].
  const float* page_sums(const CallShape& shape, const BestPagesOptions& options,
                         const DeviceRows& rows, int n_past, int n_owners, StreamHandle stream);

  RowVotes votes_;
  GrowingBuffer sums_, n_past_, items_, counts_, keys_, key_counts_;
  std::int64_t page_stride_ = 0;
};

}  // namespace kvscope::gpu
