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
#include "core/selectors/shared_scores.hpp"
#include "core/selectors/softmax_votes.hpp"

namespace kvscope {

namespace {

struct SampleAttentionOptions {
  Index n_queries = 16;
  Index dense_layers = 0;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"n-queries", "queries of a chunk that vote"}.at_least(1), self.n_queries);
    visit(Field{"dense-layers", "leading layers kept dense"}.at_least(0), self.dense_layers);
  }
};

class SampleAttention final : public SharedScoreSelector {
 public:
  explicit SampleAttention(const SampleAttentionOptions& options) : options_(options) {}
  std::string_view name() const override { return "sampleattention"; }
  SelectorCaps caps() const override {
    SelectorCaps caps;
    caps.prefill = caps.decode = caps.verify = true;
    caps.owner = ListOwner::kv_head;
    caps.budgets = {Budget::Kind::tokens, Budget::Kind::ratio, Budget::Kind::mass};
    caps.dense_layers = options_.dense_layers;
    return caps;
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const Index group = call.q.dim(0) / call.k.dim(0);
    const auto n_rows = static_cast<double>(std::min(options_.n_queries, call.n_tok) * group);
    const double n_keys = alive_keys(call, call_range(call));  // of all KV heads
    const auto d = static_cast<double>(call.q.dim(2));
    return {.score_flops = 2.0 * n_rows * n_keys * d + 5.0 * n_rows * n_keys,
            .score_bytes = n_keys * d * kBytesPerElement};
  }

 protected:
  bool is_dense(const SelectCall& call) const override {
    return call.layer < options_.dense_layers;
  }

  bool score_owners(const SelectCall& call, ListOwner owner_kind, TokenRange keys,
                    std::span<const std::span<double>> scores) override {
    const Index n_rows = std::min(options_.n_queries, call.n_tok);
    std::vector<Index> rows;
    for (Index i = 0; i < n_rows; ++i) rows.push_back(i * call.n_tok / n_rows);
    const double share = 1.0 / static_cast<double>(n_rows * shape_.group());
    softmax_votes(call, {.owner = owner_kind, .rows = rows, .keys = keys, .factor = share}, scores);
    return true;
  }

 private:
  SampleAttentionOptions options_;
};

}  // namespace

void register_sampleattention(SelectorRegistry& registry) {
  registry.add<SampleAttention, SampleAttentionOptions>(
      "sampleattention", "SampleAttention: sampled rows vote for columns", "arXiv 2406.15486",
      "exact attention of a few evenly spaced queries decides which keys the whole chunk keeps");
}

}  // namespace kvscope
