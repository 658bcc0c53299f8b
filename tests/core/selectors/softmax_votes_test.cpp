// Softmax column sums on an engine: f32 beside f64, with dead keys, sinks and windows, for any
// number of threads.
#include "core/selectors/softmax_votes.hpp"

#include <numeric>

#include "core/base/parallel.hpp"
#include "core/selectors/score_engine.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::softmax_votes_test {

using Sums = std::vector<std::vector<double>>;

double largest_gap(const Sums& a, const Sums& b) {
  double gap = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[i].size(); ++j) gap = std::max(gap, std::abs(a[i][j] - b[i][j]));
  }
  return gap;
}

Sums votes_on(SelectCall call, ScorePrecision precision, int n_threads,
              const VoteQuestion& question) {
  ThreadPool pool(n_threads);
  ScoreEngine engine(precision, &pool);
  call.engine = &engine;
  return softmax_votes(call, question);
}

TEST_CASE("votes in f32 are those of f64 to rounding, for any number of threads") {
  for (const Index n_tok : {Index{1}, Index{3}, Index{40}}) {
    for (const bool has_dead_keys : {false, true}) {
      for (const bool has_sink_logits : {false, true}) {
        CallFixture fixture({.n_past = 3000, .n_tok = n_tok, .phase = Phase::prefill});
        const Index n_kv = fixture.call.k.dim(0);
        const Index n_ctx = fixture.call.k.dim(1);
        AliveMask alive(n_kv);
        alive.append(n_ctx);
        for (Index pos = 7; has_dead_keys && pos < n_ctx - n_tok; pos += pos % 5 + 1)
          alive.kill(pos % n_kv, static_cast<KeyPos>(pos));
        fixture.call.alive = &alive;
        std::vector<float> sink_logits(static_cast<std::size_t>(fixture.call.q.dim(0)), 1.5f);
        if (has_sink_logits) fixture.call.sink_logits = sink_logits;
        if (has_sink_logits) fixture.call.window = 700;
        if (has_dead_keys) fixture.call.score_cap = 1.5f;
        const Index first = has_sink_logits
                                ? 3000 - 690
                                : 100;  // every key that is asked about is seen by some query
        std::vector<Index> rows(static_cast<std::size_t>(n_tok));
        std::iota(rows.begin(), rows.end(), Index{0});
        for (const ListOwner owner : {ListOwner::kv_head, ListOwner::q_head}) {
          INFO(n_tok << " queries, dead keys " << has_dead_keys << ", sinks " << has_sink_logits);
          const VoteQuestion question{
              .owner = owner, .rows = rows, .keys = {first, n_ctx - 1}, .factor = 0.25};
          const Sums exact = votes_on(fixture.call, ScorePrecision::f64, 1, question);
          const Sums quick = votes_on(fixture.call, ScorePrecision::f32, 1, question);
          CHECK(largest_gap(exact, quick) < 2e-6 * static_cast<double>(n_tok));
          CHECK(quick == votes_on(fixture.call, ScorePrecision::f32, 3, question));
        }
      }
    }
  }
}

}  // namespace kvscope::test::softmax_votes_test
