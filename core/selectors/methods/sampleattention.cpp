// sampleattention: exact attention of a few sampled queries votes for key columns (arXiv
// 2406.15486). No official code.
//
// Idea: take N_Q queries of the chunk at a uniform stride, compute their exact softmax rows over
// all visible keys for every head, add the weights up per key over queries and the group, keep the
// columns of largest sum. With a budget p the smallest set of past keys that holds a share p of the
// sampled mass on the past is kept (the first version's column stripes).
//
// Cost per call and layer: 2 n_q N_Q T d FLOPs and 5 n_q N_Q T for the softmax, one read of all
// keys: in decode, where the one query is the sample, half of what dense attention reads, and no
// less. Stores nothing.
//
// Fails when the queries that matter fall between the samples.
//
// Decided where the sources are silent: the QuoKA comparison's setting (16 queries per chunk, one
// list per KV head, past keys scored, chunk forced); sampled rows are floor(i C / N_Q); the softmax
// includes the visible chunk keys; in decode the one query is the sample. Sinks and a local window
// of the one-shot version are not forced: sinks win the vote.
#include "core/selectors/cost_units.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/selectors/softmax_votes.hpp"

namespace kvscope {

namespace {

class SampleAttention final : public SharedScoreSelector {
 public:
  Index n_queries_ =
      option(n_queries_, "n-queries", 16, "queries of a chunk that vote", at_least(1));
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override {
    return {.budgets = {Budget::Kind::tokens, Budget::Kind::ratio, Budget::Kind::mass},
            .dense_layers = dense_layers_};
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const Index n_rows = std::min(n_queries_, call.n_tok);
    const auto n_weights = static_cast<double>(n_rows * call.q.dim(0) / call.k.dim(0)) *
                           alive_keys(call, call_range(call));
    return exact_scoring_cost(call, call_range(call), n_rows) + flops_cost(5.0 * n_weights);
  }

 protected:
  bool score_owners(const SelectCall& call, ListOwner owner_kind, TokenRange keys,
                    std::span<const std::span<double>> scores) override {
    const Index n_rows = std::min(n_queries_, call.n_tok);
    std::vector<Index> rows;
    for (Index i = 0; i < n_rows; ++i) rows.push_back(i * call.n_tok / n_rows);
    const double share = 1.0 / static_cast<double>(n_rows * shape_.group());
    softmax_votes(call, {.owner = owner_kind, .rows = rows, .keys = keys, .factor = share}, scores);
    return true;
  }
};

}  // namespace

void register_sampleattention(SelectorRegistry& registry) {
  registry.add<SampleAttention>(
      "sampleattention", "SampleAttention: sampled rows vote for columns", "arXiv 2406.15486",
      "exact attention of a few evenly spaced queries decides which keys the whole chunk keeps");
}

}  // namespace kvscope
