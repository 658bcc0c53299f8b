#include "core/cuda/best_pages.hpp"

#include <algorithm>

#include "core/cuda/launch.cuh"
#include "core/cuda/listed_keys.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/top_lists.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kThreads = 128;
constexpr const char* kUse = "the attention of pages";

struct PageSums {
  const float* weights;  // [n_owners * n_voters, stride] of keys
  std::int64_t stride;
  int n_keys;
  int n_voters;  // of an owner
  bool takes_largest;
  int page_size;
  int n_pages;
  float* sums;  // [n_owners, page_stride]
  std::int64_t page_stride;
};

/// A thread per page.
__global__ void __launch_bounds__(kThreads) page_sums_kernel(PageSums call) {
  take_turn();
  const int page = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (page >= call.n_pages) return;
  const int owner = static_cast<int>(blockIdx.y);
  const int begin = page * call.page_size;
  const int end = min(begin + call.page_size, call.n_keys);
  double joined = 0.0;
  for (int voter = owner * call.n_voters; voter < (owner + 1) * call.n_voters; ++voter) {
    const float* const weights = call.weights + voter * call.stride;
    double sum = 0.0;
    for (int key = begin; key < end; ++key) sum += static_cast<double>(weights[key]);
    joined = call.takes_largest ? fmax(joined, sum) : joined + sum;
  }
  call.sums[owner * call.page_stride + page] = static_cast<float>(joined);
}

}  // namespace

const float* BestPages::page_sums(const CallShape& shape, const BestPagesOptions& options,
                                  const DeviceRows& rows, int n_past, int n_owners,
                                  StreamHandle stream) {
  check_shape(shape);
  const int n_context = n_past + rows.n_tok;
  VoteCall call{rows, DeviceLists{}, n_context, 0, rows.n_tok};
  if (rows.n_tok == 1) call.of = VoteCall::Of::q_heads;
  PageSums sums;
  sums.weights = votes_.sum(shape, call, stream);
  sums.stride = votes_.stride();
  sums.n_keys = n_context;
  sums.n_voters = rows.n_tok == 1 ? shape.n_q / n_owners : 1;
  sums.takes_largest = options.owner == ListPlan::Owner::group_max;
  sums.page_size = options.page_size;
  sums.n_pages = (n_context + options.page_size - 1) / options.page_size;
  page_stride_ = (std::int64_t{sums.n_pages} + 3) / 4 * 4;
  sums.page_stride = page_stride_;
  sums.sums = sums_.room<float>(n_owners * page_stride_, kUse);
  Launch how;
  how.grid = dim3(static_cast<unsigned>((sums.n_pages + kThreads - 1) / kThreads),
                  static_cast<unsigned>(n_owners));
  how.threads = kThreads;
  launch(stream, how, "start the sums of pages", page_sums_kernel, sums);
  return sums.sums;
}

DeviceLists BestPages::choose(const CallShape& shape, const BestPagesOptions& options,
                              const DeviceRows& rows, int n_past, StreamHandle stream) {
  if (rows.n_tok != 1)
    throw ShapeError("pages of a step on the GPU: expected one query, found " +
                     std::to_string(rows.n_tok));
  const int n_owners = options.owner == ListPlan::Owner::q_head ? shape.n_q : shape.n_kv;
  TopLists top;
  top.scores = page_sums(shape, options, rows, n_past, n_owners, stream);
  top.stride = page_stride_;
  top.n_owners = n_owners;
  top.n_past = rows.n_past;
  top.rule = rule_of(options.pages);
  top.budget = options.budget;
  top.page_size = options.page_size;
  top.item_stride = most_pages_of(n_past + 1, options.page_size, options.budget);
  top.items = items_.room<std::int32_t>(std::int64_t{n_owners} * top.item_stride, kUse);
  top.counts = counts_.room<std::int32_t>(n_owners, kUse);
  make_top_lists(top, stream);
  return {top.items, top.counts, top.item_stride, n_owners, options.page_size};
}

DeviceLists BestPages::choose_before(const CallShape& shape, const BestPagesOptions& options,
                                     const DeviceRows& rows, int n_past, StreamHandle stream) {
  const int page_size = options.page_size;
  const std::int32_t n_whole = n_past / page_size;
  TopLists top;
  top.scores = page_sums(shape, options, rows, n_past, shape.n_kv, stream);
  top.stride = page_stride_;
  top.n_owners = shape.n_kv;
  top.n_past = n_past_.upload(&n_whole, 1, kUse, stream);
  top.budget = most_pages_before(n_past, page_size, options.budget, options.pages);
  top.item_stride = std::max(1, top.budget);
  top.items = items_.room<std::int32_t>(std::int64_t{shape.n_kv} * top.item_stride, kUse);
  top.counts = counts_.room<std::int32_t>(shape.n_kv, kUse);
  make_top_lists(top, stream);
  const int stride = (top.budget + 1) * page_size;
  auto* const keys = keys_.room<std::int32_t>(std::int64_t{shape.n_kv} * stride, kUse);
  auto* const counts = key_counts_.room<std::int32_t>(shape.n_kv, kUse);
  list_keys({top.items, top.counts, top.item_stride, shape.n_kv, page_size}, 1, rows.n_past,
            kOfCutPage, keys, counts, stride, stream);
  return {keys, counts, stride, shape.n_kv, 1};
}

}  // namespace kvscope::gpu
