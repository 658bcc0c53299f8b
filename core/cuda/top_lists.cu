// Lists of the best scores, a cluster of blocks for a row of scores.
#include <algorithm>

#include "core/cuda/best_list.cuh"
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"

namespace kvscope::gpu {

namespace {

constexpr int kMostCandidates = 1024;
constexpr int kMostBlocks = 8;
constexpr std::int64_t kScoresPerBlock = 4096;  // where several share a row
constexpr std::int64_t kBlocksAtATime = 512;    // about: with more lists than these none is shared

template <int kThreads>
__global__ void __launch_bounds__(kThreads) top_lists_kernel(TopLists call) {
  __shared__ CutMemory<kThreads, kMostCandidates> s;
  cg::cluster_group cluster = cg::this_cluster();
  const int n_blocks = static_cast<int>(cluster.num_blocks());
  const int rank = static_cast<int>(cluster.block_rank());
  const int batch = static_cast<int>(blockIdx.z);
  const std::int64_t list = static_cast<std::int64_t>(batch) * call.n_owners + blockIdx.y;
  const int thread = static_cast<int>(threadIdx.x);
  const Limits limits = limits_of(call, call.n_past[batch]);
  const int share = ((limits.n_scores + n_blocks - 1) / n_blocks + 127) / 128 * 128;
  const int begin = min(rank * share, limits.n_scores);
  const int end = min(begin + share, limits.n_scores);
  Run run = run_of_warp<kThreads>(call.scores + list * call.stride, begin, end);
  if (thread == 0) begin_cut(s, limits);
  take_turn();
  run.load(0);

  write_best(s, cluster, n_blocks, rank, run, limits,
             call.histogram == nullptr ? nullptr : call.histogram + list * kBuckets,
             call.items + list * call.item_stride);
  if (rank == 0 && thread == 0) call.counts[list] = limits.n_listed();
}

}  // namespace

int most_pages_of(std::int64_t capacity, int page_size, int budget) {
  const auto pages = [&](std::int64_t n_keys) {
    return static_cast<int>((n_keys + page_size - 1) / page_size);
  };
  return std::min(pages(capacity), std::max(3, pages(budget) + 1));
}

int most_pages_before(std::int64_t capacity, int page_size, int budget, ListPlan::Pages pages) {
  const Index n_pages = capacity / page_size;
  return static_cast<int>(
      pages_kept<Index>(pages, budget, page_size, n_pages * page_size, n_pages));
}

void make_top_lists(const TopLists& call, StreamHandle stream) {
  constexpr int kWide = 1024;  // threads that hold 16 scores each
  constexpr int kNarrow = 512;
  const std::int64_t n_lists = std::int64_t{call.n_batch} * call.n_owners;
  const std::int64_t most = std::clamp<std::int64_t>(kBlocksAtATime / n_lists, 1, kMostBlocks);
  const auto n_blocks =
      static_cast<int>(std::clamp<std::int64_t>(call.stride / kScoresPerBlock, 1, most));
  const bool is_narrow = call.stride <= std::int64_t{n_blocks} * kNarrow * 4;
  const Blocks grid(n_blocks, call.n_owners, call.n_batch);
  launch(stream, {grid, is_narrow ? kNarrow : kWide, 0, n_blocks},
         "start the lists of the best scores",
         is_narrow ? top_lists_kernel<kNarrow> : top_lists_kernel<kWide>, call);
}

}  // namespace kvscope::gpu
