#include "core/selectors/slash_votes.hpp"

#include <algorithm>
#include <numeric>

#include "core/selectors/owners.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/selectors/softmax_votes.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kVoterBatch = 16;  // rows whose scores are held at a time

void add_exact_votes(const SelectCall& call, Index q_head, std::span<const Index> voters,
                     KeyDots& dots, std::span<double> columns, std::span<double> offsets) {
  const TokenRange keys{0, call.pos_begin + call.n_tok};
  const Index kv_head = q_head / (call.q.dim(0) / call.k.dim(0));
  for (std::size_t first = 0; first < voters.size(); first += kVoterBatch) {
    const auto rows = voters.subspan(first, std::min(kVoterBatch, voters.size() - first));
    dots.compute(query_rows(call, q_head, rows, static_cast<double>(call.score_scale)),
                 static_cast<Index>(rows.size()), call.k.sub(kv_head), keys);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::span<double> weights = dots.row(static_cast<Index>(r));
      soft_cap(weights, call.score_rule().cap);
      softmax_over_visible(call, kv_head, rows[r], keys, weights, sink_logit_of(call, q_head));
      const Index pos = call.pos_begin + rows[r];
      for (Index j = 0; j <= pos; ++j) {
        columns[static_cast<std::size_t>(j)] += weights[static_cast<std::size_t>(j)];
        offsets[static_cast<std::size_t>(pos - j)] += weights[static_cast<std::size_t>(j)];
      }
    }
  }
}

}  // namespace

SlashVotes slash_votes(const SelectCall& call, Index n_voters) {
  const auto n_ctx = static_cast<std::size_t>(call.pos_begin + call.n_tok);
  std::vector<Index> rows(static_cast<std::size_t>(std::min(n_voters, call.n_tok)));
  std::iota(rows.begin(), rows.end(), call.n_tok - static_cast<Index>(rows.size()));
  SlashVotes votes;
  votes.columns.resize(static_cast<std::size_t>(call.q.dim(0)));
  votes.offsets.resize(votes.columns.size());
  ScoreEngine& engine = engine_of(call);
  const bool is_exact = engine.precision() == ScorePrecision::f64;
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
