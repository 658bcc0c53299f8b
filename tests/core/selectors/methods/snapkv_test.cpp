// SnapKV against votes and pooling by loops.
#include <set>

#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::snapkv_test {

struct Rule {
  std::string spec;
  Index window;
  Index kernel;
  bool is_max;
  bool per_q_head;
};

TEST_CASE("snapkv keeps the pooled votes of the last queries and its window") {
  const Sequence sequence = random_sequence(
      {.n_kv = 2, .group = 2, .n_tokens = 60, .chunk = 20, .n_decode = 3, .has_ties = false});
  const AttentionShape& shape = sequence.shape;
  constexpr Index kBudget = 14;
  for (const Rule& rule : {Rule{"snapkv:window=6", 6, 5, false, false},
                           Rule{"snapkv-longbench:window=4", 4, 7, true, false},
                           Rule{"snapkv:window=50", 50, 5, false, false},
                           Rule{"snapkv-official-mha:window=6", 6, 5, false, true}}) {
    SelectorRun run(make_selector(rule.spec, sequence), shape,
                    {{Budget::Kind::tokens, double{kBudget}}});
    const Index n_owners = rule.per_q_head ? shape.n_q : shape.n_kv;
    const Index n_voices = shape.n_q / n_owners;
    std::vector<std::set<KeyPos>> cache(static_cast<std::size_t>(n_owners));  // of layer 1
    for (const auto& [phase, n_tok] : sequence.calls) {
      const auto selection = run_call(run, sequence, phase, n_tok)[1][0];
      const Index n_ctx = run.n_keys();
      for (Index owner = 0; owner < n_owners; ++owner) {
        auto& kept = cache[owner];
        for (Index j = n_ctx - n_tok; j < n_ctx; ++j) kept.insert(static_cast<KeyPos>(j));
        INFO(rule.spec << ", " << n_ctx << " keys, owner " << owner);
        if (!selection.is_dense) {  // what was attended to
          std::set<KeyPos> seen(selection.scored[owner].begin(), selection.scored[owner].end());
          seen.insert(selection.forced[owner].begin(), selection.forced[owner].end());
          CHECK(seen == kept);
        }
        if (phase == Phase::decode || static_cast<Index>(kept.size()) <= kBudget) continue;
        std::vector<double> votes(static_cast<std::size_t>(n_ctx), 0.0);
        for (Index h = owner * n_voices; h < (owner + 1) * n_voices; ++h) {
          for (Index pos = n_ctx - std::min(rule.window, n_tok); pos < n_ctx; ++pos) {
            const auto weights = naive_weights(sequence, 1, h, pos, kept);
            for (std::size_t j = 0; j < weights.size(); ++j)
              votes[j] += weights[j] / static_cast<double>(n_voices);
          }
        }
        const std::vector<KeyPos> keys(kept.begin(), kept.end());
        const Index n_old = static_cast<Index>(keys.size()) - std::min(rule.window, kBudget);
        std::vector<double> score(static_cast<std::size_t>(n_ctx), 1e9);
        for (Index i = 0; i < n_old; ++i) {
          double sum = 0.0;
          double best = 0.0;
          for (Index near = i - rule.kernel / 2; near <= i + rule.kernel / 2; ++near) {
            if (near < 0 || near >= n_old) continue;
            const double vote = votes[keys[near]];
            sum += vote;
            best = std::max(best, vote);
          }
          score[keys[i]] = rule.is_max ? best : sum / static_cast<double>(rule.kernel);
        }
        kept = naive_best(score, kept, kBudget);
      }
      for (Index kv_head = 0; kv_head < shape.n_kv; ++kv_head) {
        std::set<KeyPos> expected;
        for (Index owner = kv_head * n_owners / shape.n_kv;
             owner < (kv_head + 1) * n_owners / shape.n_kv; ++owner) {
          expected.insert(cache[owner].begin(), cache[owner].end());
        }
        INFO(rule.spec << ", " << n_ctx << " keys, KV head " << kv_head);
        CHECK(alive_keys(run.alive(1), kv_head) == expected);
      }
    }
  }
}

}  // namespace kvscope::test::snapkv_test
