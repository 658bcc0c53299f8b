#include "core/selectors/slash_votes.hpp"

#include <algorithm>

#include "core/base/evenly_spaced.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/selectors/softmax_votes.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kVoterBatch = 16;  // rows whose scores are held at a time

void add_exact_votes(const SelectCall& call, Index q_head, std::span<const Index> voters,
                     KeyDots& dots, std::span<double> columns, std::span<double> offsets) {
  const Index kv_head = q_head / (call.q.dim(0) / call.k.dim(0));
  for_each_score_row(
      call, q_head, kv_head, voters, dots,
      [&](Index row, std::span<double> weights) {
        const TokenRange visible = row_range(call, row);
        softmax_over_visible(call, kv_head, row, visible, weights, sink_logit_of(call, q_head));
        for (std::size_t i = 0; i < weights.size(); ++i) {
          const Index key = visible.begin + static_cast<Index>(i);
          columns[static_cast<std::size_t>(key)] += weights[i];
          offsets[static_cast<std::size_t>(visible.end - 1 - key)] += weights[i];
        }
      },
      kVoterBatch);
}

}  // namespace

SlashVotes slash_votes(const SelectCall& call, Index n_voters) {
  const auto n_ctx = static_cast<std::size_t>(call.pos_begin + call.n_tok);
  const std::vector<Index> rows = all_in(std::max<Index>(0, call.n_tok - n_voters), call.n_tok);
  SlashVotes votes;
  votes.columns.resize(static_cast<std::size_t>(call.q.dim(0)));
  votes.offsets.resize(votes.columns.size());
  ScoreEngine& engine = engine_of(call);
  const bool is_exact = engine.precision() == ScorePrecision::f64 || call.remote != nullptr;
  engine.run(call.q.dim(0), [&](Index q_head, ScoreWorker& worker) {
    const auto head = static_cast<std::size_t>(q_head);
    votes.columns[head].assign(n_ctx, 0.0);
    votes.offsets[head].assign(n_ctx, 0.0);
    if (is_exact)
      add_exact_votes(call, q_head, rows, worker.dots, votes.columns[head], votes.offsets[head]);
  });
  if (is_exact) return votes;
  std::vector<std::vector<KeyPos>> memory;
  add_votes_f32(call, {.owner = ListOwner::q_head, .rows = rows, .keys = {0, call.k.dim(1)}},
                alive_lists(call, memory), rows_of(votes.columns), rows_of(votes.offsets));
  return votes;
}

}  // namespace kvscope
