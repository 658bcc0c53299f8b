// TOVA against a cache that is kept by hand.
#include <set>

#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::tova_test {

TEST_CASE("tova keeps what the last query attends to, for all heads alike") {
  const Sequence sequence =
      random_sequence({.n_kv = 2, .group = 3, .n_tokens = 45, .has_ties = false});
  for (const std::string spec : {"tova", "tova-kvpress"}) {
    SelectorRun run(make_selector(spec, sequence), sequence.shape, {{Budget::Kind::tokens, 12.0}});
    std::vector<std::set<KeyPos>> cache(static_cast<std::size_t>(sequence.shape.n_layers));
    for (const auto& [phase, n_tok] : sequence.calls) {
      run_call(run, sequence, phase, n_tok);
      const Index n_ctx = run.n_keys();
      for (Index layer = 0; layer < sequence.shape.n_layers; ++layer) {
        auto& kept = cache[layer];
        for (Index j = n_ctx - n_tok; j < n_ctx; ++j) kept.insert(static_cast<KeyPos>(j));
        std::vector<double> votes(static_cast<std::size_t>(n_ctx), 0.0);
        for (Index q_head = 0; q_head < sequence.shape.n_q; ++q_head) {
          const auto weights = naive_weights(sequence, layer, q_head, n_ctx - 1, kept);
          for (std::size_t j = 0; j < votes.size(); ++j) votes[j] += weights[j];
        }
        if (spec == "tova-kvpress") votes.back() = 1e9;
        kept = naive_best(votes, kept, 12);
        INFO(spec << ", " << n_ctx << " keys, layer " << layer);
        for (Index kv_head = 0; kv_head < sequence.shape.n_kv; ++kv_head)
          CHECK(alive_keys(run.alive(layer), kv_head) == kept);
      }
    }
  }
}

}  // namespace kvscope::test::tova_test
