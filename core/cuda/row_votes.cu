#include "core/cuda/row_votes.hpp"

#include <algorithm>

#include "core/cuda/query_scores.cuh"

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
  if (call.of == VoteCall::Of::q_heads) voters.n_kv = shape.n_q;
  if (!joins_rows) voters.n_kv = 1;
  const int n_sums = (joins_rows ? voters.n_kv : n_rows) * (call.adds_distances ? 2 : 1);
  float* const votes = weights_.room<float>(n_sums * stride_, kUse);
  weighing.joins_rows = joins_rows;
  for (int row = call.first_row; row < call.end_row; row += most_rows) {
    scoring.first_row = row;
    scoring.n_rows = std::min(most_rows, call.end_row - row);
    score_queries(shape, scoring, stream);
    weighing.weights = joins_rows ? votes : votes + (row - call.first_row) * stride_;
    weighing.adds = joins_rows && row > call.first_row;
    weigh_keys(voters, weighing, stream);
    if (call.adds_distances)
      weigh_distances(voters, weighing, votes + voters.n_kv * stride_, stream);
  }
  return votes;
}

}  // namespace kvscope::gpu
