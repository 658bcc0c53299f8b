#include "core/cuda/row_votes.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/cuda/query_scores.cuh"
#include "core/cuda/top_lists.cuh"
#include "core/cuda/weight_lists.cuh"

namespace kvscope::gpu {

float* RowVotes::sum(const CallShape& shape, const VoteCall& call, StreamHandle stream) {
  constexpr const char* kUse = "the votes for keys";
  stride_ = (std::int64_t{call.most_keys} + 3) / 4 * 4;
  const int n_rows = call.end_row - call.first_row;
  const std::int64_t row_bytes = shape.n_q * stride_ * static_cast<std::int64_t>(sizeof(float));
  const int most_rows =
      static_cast<int>(std::clamp<std::int64_t>(call.most_bytes / row_bytes, 1, n_rows));
  QueryWeights weighing;
  QueryScores& scoring = weighing.from;
  scoring.q = call.rows.q;
  scoring.k = call.rows.k;
  scoring.list = {call.lists, call.rows.n_past, call.rows.n_tok, /*log2_page=*/0,
                  /*adds_own=*/true};
  scoring.most_keys = call.most_keys;
  scoring.scores = scores_.room<float>(most_rows * shape.n_q * stride_, kUse);
  scoring.stride = stride_;
  weighing.extremes = extremes_.room<float2>(std::int64_t{most_rows} * shape.n_q, kUse);
  const bool joins_rows = call.of != VoteCall::Of::rows;
  CallShape voters = shape;  // heads whose votes are one
  if (!joins_rows) voters.n_kv = 1;
  const int n_sums = joins_rows ? voters.n_kv : n_rows;
  float* const votes = weights_.room<float>(n_sums * stride_, kUse);
  weighing.joins_rows = joins_rows;
  for (int row = call.first_row; row < call.end_row; row += most_rows) {
    scoring.first_row = row;
    scoring.n_rows = std::min(most_rows, call.end_row - row);
    score_queries(shape, scoring, stream);
    weighing.weights = joins_rows ? votes : votes + (row - call.first_row) * stride_;
    weighing.adds = joins_rows && row > call.first_row;
    weigh_keys(voters, weighing, stream);
  }
  return votes;
}

DeviceLists RowVotes::best(const CallShape& shape, const DeviceRows& rows, int n_past,
                           const BestRule& rule, StreamHandle stream) {
  constexpr const char* kUse = "the best keys of rows";
  const int n_tok = rows.n_tok;
  const int n_context = n_past + n_tok;
  const std::int64_t stride = (std::int64_t{n_context} + 3) / 4 * 4;
  const bool has_budget = rule.budget > 0;
  const int item_stride = has_budget ? std::min(rule.budget, n_context) : n_context;
  const std::int64_t n_lists = std::int64_t{n_tok} * shape.n_q;
  auto* const items = items_.room<std::int32_t>(n_lists * item_stride, kUse);
  auto* const counts = counts_.room<std::int32_t>(n_lists, kUse);
  std::vector<std::int32_t> competing;
  for (int row = 0; row < n_tok; ++row)
    competing.push_back(rule.before_call ? n_past : n_past + row + 1);
  const std::int32_t* const n_competing =
      competing_.upload(competing.data(), competing.size(), kUse, stream);
  const std::int64_t row_bytes = shape.n_q * stride * static_cast<std::int64_t>(sizeof(float));
  const int most_rows =
      static_cast<int>(std::clamp<std::int64_t>(VoteCall().most_bytes / row_bytes, 1, n_tok));
  QueryScores scoring;
  scoring.q = rows.q;
  scoring.k = rows.k;
  scoring.list = {DeviceLists{}, rows.n_past, n_tok, /*log2_page=*/0, /*adds_own=*/true};
  scoring.most_keys = n_context;
  scoring.scores = scores_.room<float>(most_rows * shape.n_q * stride, kUse);
  scoring.stride = stride;
  for (int first = 0; first < n_tok; first += most_rows) {
    scoring.first_row = first;
    scoring.n_rows = std::min(most_rows, n_tok - first);
    score_queries(shape, scoring, stream);
    std::int32_t* const to = items + std::int64_t{first} * shape.n_q * item_stride;
    std::int32_t* const to_counts = counts + std::int64_t{first} * shape.n_q;
    if (!has_budget) {
      make_weight_lists(
          {scoring.scores, stride, scoring.n_rows, shape.n_q, n_past + first + scoring.n_rows,
           rule.least_weight, rule.mass, to, to_counts, item_stride},
          stream);
      continue;
    }
    TopLists top;
    top.scores = scoring.scores;
    top.stride = stride;
    top.n_batch = scoring.n_rows;
    top.n_owners = shape.n_q;
    top.n_past = n_competing + first;
    top.budget = rule.budget;
    top.items = to;
    top.counts = to_counts;
    top.item_stride = item_stride;
    make_top_lists(top, stream);
  }
  return {items, counts, item_stride, shape.n_q, /*page_size=*/1};
}

const float* RowVotes::scores(const CallShape& shape, const DeviceRows& rows, int n_past,
                              const HeadRows& of, StreamHandle stream) {
  const std::int64_t row_bytes = shape.d_head * static_cast<std::int64_t>(size_of(shape.dtype));
  const int kv_head = of.q_head / shape.group();
  CallShape head = shape;
  head.n_q = head.n_kv = 1;
  QueryScores call;
  call.q = static_cast<const std::byte*>(rows.q) + of.q_head * rows.n_tok * row_bytes;
  call.k = static_cast<const std::byte*>(rows.k) + kv_head * shape.capacity * row_bytes;
  call.list = {DeviceLists{}, rows.n_past, rows.n_tok, /*log2_page=*/0, /*adds_own=*/true};
  call.first_row = of.first_row;
  call.n_rows = of.end_row - of.first_row;
  call.most_keys = n_past + rows.n_tok;
  call.stride = call.most_keys;
  call.scores = scores_.room<float>(call.n_rows * call.stride, "the scores of rows");
  score_queries(head, call, stream);
  return call.scores;
}

}  // namespace kvscope::gpu
