// H2O against sums and a cache that are kept by hand.
#include <set>

#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::h2o_test {

/// The cache of one run: sums over all queries so far (or per query, or of the last `window`), even
/// split of the budget.
void check_against_cache(const std::string& spec, Index n_window, bool by_queries, Index n_recent) {
  const Sequence sequence =
      random_sequence({.n_kv = 2, .group = 2, .n_tokens = 50, .n_decode = 12, .has_ties = false});
  constexpr Index kBudget = 12;
  SelectorRun run(make_selector(spec, sequence), sequence.shape,
                  {{Budget::Kind::tokens, double{kBudget}}});
  const AttentionShape& shape = sequence.shape;
  std::vector<std::set<KeyPos>> cache(static_cast<std::size_t>(shape.n_layers * shape.n_kv));
  std::vector<std::vector<std::vector<double>>> rows(cache.size());  // every query's vote, by query
  for (const auto& [phase, n_tok] : sequence.calls) {
    run_call(run, sequence, phase, n_tok);
    const Index n_ctx = run.n_keys();
    for (Index layer = 0; layer < shape.n_layers; ++layer) {
      for (Index kv_head = 0; kv_head < shape.n_kv; ++kv_head) {
        const auto at = static_cast<std::size_t>(layer * shape.n_kv + kv_head);
        auto& kept = cache[at];
        for (Index pos = n_ctx - n_tok; pos < n_ctx; ++pos) kept.insert(static_cast<KeyPos>(pos));
        for (Index pos = n_ctx - n_tok; pos < n_ctx; ++pos) {
          std::vector<double> vote(static_cast<std::size_t>(shape.max_tokens), 0.0);
          for (Index h = kv_head * shape.group(); h < (kv_head + 1) * shape.group(); ++h) {
            const auto weights = naive_weights(sequence, layer, h, pos, kept);
            for (std::size_t j = 0; j < weights.size(); ++j)
              vote[j] += weights[j] / static_cast<double>(shape.group());
          }
          rows[at].push_back(vote);
        }
        std::vector<double> score(static_cast<std::size_t>(n_ctx), 0.0);
        for (std::size_t i = 0; i < rows[at].size(); ++i) {
          if (static_cast<Index>(i) < n_ctx - n_window) continue;
          for (std::size_t j = 0; j < score.size(); ++j) score[j] += rows[at][i][j];
        }
        for (std::size_t j = 0; by_queries && j < score.size(); ++j)
          score[j] /= static_cast<double>(score.size() - j);
        for (Index j = n_ctx - n_recent; j < n_ctx; ++j) score[j] = 1e9;
        kept = naive_best(score, kept, kBudget);
        INFO(spec << ", " << n_ctx << " keys, layer " << layer << ", KV head " << kv_head);
        CHECK(alive_keys(run.alive(layer), kv_head) == kept);
      }
    }
  }
}

TEST_CASE("h2o keeps the largest sums and the latest keys") {
  check_against_cache("h2o", 1000, /*by_queries=*/false, 6);
  check_against_cache("h2o-sparq", 1000, /*by_queries=*/false, 3);
  check_against_cache("h2o-by-queries", 1000, /*by_queries=*/true, 6);
  check_against_cache("h2o:normalise=window,vote-window=5", 5, /*by_queries=*/false, 6);
}

TEST_CASE("h2o: the published index error hides the first recent key for one call") {
  const Sequence sequence =
      random_sequence({.n_tokens = 40, .chunk = 36, .n_decode = 4, .has_ties = false});
  SelectorRun run(make_selector("h2o-official-quirk", sequence), sequence.shape,
                  {{Budget::Kind::tokens, 10.0}});
  run_call(run, sequence, Phase::prefill, 36);
  const auto selection = run_call(run, sequence, Phase::decode, 1);
  const std::vector<KeyPos>& seen = selection[0][0].scored[0];
  CHECK(seen.size() == 9);
  // 36 keys, 5 recent: the first of them is 31.
  CHECK(std::ranges::find(seen, 31) == seen.end());
  CHECK(std::ranges::find(seen, 32) != seen.end());
}

}  // namespace kvscope::test::h2o_test
