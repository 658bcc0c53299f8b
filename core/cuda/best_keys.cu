#include "core/cuda/best_keys.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "core/cuda/query_scores.cuh"
#include "core/cuda/top_lists.cuh"
#include "core/cuda/weight_lists.cuh"

namespace kvscope::gpu {

namespace {

constexpr const char* kUse = "the scores of all keys";

void check_call(const CallShape& shape, const BestKeysOptions& options, const DeviceRows& rows,
                int n_past) {
  const auto refuse = [](const std::string& expected, long long found) {
    throw ShapeError("the keys of largest attention on the GPU: expected " + expected + ", found " +
                     std::to_string(found));
  };
  check_shape(shape);
  if (shape.n_batch != 1) refuse("one sequence", shape.n_batch);
  if (options.has_budget() && options.budget < 1)
    refuse("a budget of at least one key", options.budget);
  if (rows.n_tok < 1) refuse("at least one query", rows.n_tok);
  if (n_past < 0 || n_past + rows.n_tok > shape.capacity)
    refuse("keys within the capacity", n_past + std::int64_t{rows.n_tok});
}

}  // namespace

void BestKeys::choose(const CallShape& shape, const BestKeysOptions& options,
                      const DeviceRows& rows, int n_past, StreamHandle stream) {
  check_call(shape, options, rows, n_past);
  const int n_tok = rows.n_tok;
  const int n_context = n_past + n_tok;
  const std::int64_t stride = (std::int64_t{n_context} + 3) / 4 * 4;
  const bool has_weights = options.owner != ListPlan::Owner::q_head;
  const int n_owners = has_weights ? shape.n_kv : shape.n_q;
  n_row_blocks_ = options.joins_rows ? 1 : n_tok;
  lists_.n_owners = n_owners;
  lists_.stride = options.has_budget() ? std::min(options.budget, n_context) : n_context;

  std::vector<std::int32_t> competing;
  for (int block = 0; block < n_row_blocks_; ++block)
    competing.push_back(options.forces_own ? n_past : n_past + block + 1);
  TopLists top;
  top.stride = stride;
  top.n_owners = n_owners;
  top.budget = options.budget;
  top.item_stride = lists_.stride;
  const std::int32_t* const n_competing =
      competing_.upload(competing.data(), competing.size(), kUse, stream);
  const std::int64_t n_lists = std::int64_t{n_row_blocks_} * n_owners;
  auto* const items = items_.room<std::int32_t>(n_lists * lists_.stride, kUse);
  auto* const counts = counts_.room<std::int32_t>(n_lists, kUse);
  lists_.items = items;
  lists_.counts = counts;
  const auto make_lists = [&](const float* ranks, int first, int n_blocks) {
    std::int32_t* const to = items + std::int64_t{first} * n_owners * lists_.stride;
    std::int32_t* const to_counts = counts + std::int64_t{first} * n_owners;
    if (!options.has_budget()) {
      make_weight_lists({ranks, stride, n_blocks, n_owners, n_past + first + n_blocks,
                         options.least_weight, options.mass, to, to_counts, lists_.stride},
                        stream);
      return;
    }
    top.scores = ranks;
    top.n_batch = n_blocks;
    top.n_past = n_competing + first;
    top.items = to;
    top.counts = to_counts;
    make_top_lists(top, stream);
  };
  if (options.joins_rows) {
    const VoteCall call{rows, DeviceLists{}, n_context, 0, n_tok, options.most_bytes};
    make_lists(votes_.sum(shape, call, stream), 0, 1);
    return;
  }

  const std::int64_t row_bytes = shape.n_q * stride * static_cast<std::int64_t>(sizeof(float));
  const int most_rows =
      static_cast<int>(std::clamp<std::int64_t>(options.most_bytes / row_bytes, 1, n_tok));
  QueryWeights weighing;
  QueryScores& scoring = weighing.from;
  scoring.q = rows.q;
  scoring.k = rows.k;
  scoring.list = {DeviceLists{}, rows.n_past, n_tok, /*log2_page=*/0, /*adds_own=*/true};
  scoring.most_keys = n_context;
  scoring.scores = scores_.room<float>(most_rows * shape.n_q * stride, kUse);
  scoring.stride = stride;
  if (has_weights) {
    weighing.extremes = extremes_.room<float2>(std::int64_t{most_rows} * shape.n_q, kUse);
    weighing.weights = weights_.room<float>(most_rows * shape.n_kv * stride, kUse);
    weighing.join = options.owner == ListPlan::Owner::group_max ? Join::largest : Join::sum;
  }
  for (int first = 0; first < n_tok; first += most_rows) {
    scoring.first_row = first;
    scoring.n_rows = std::min(most_rows, n_tok - first);
    score_queries(shape, scoring, stream);
    if (has_weights) weigh_keys(shape, weighing, stream);
    make_lists(has_weights ? weighing.weights : scoring.scores, first, scoring.n_rows);
  }
}

}  // namespace kvscope::gpu
