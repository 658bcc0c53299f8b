// The wrapper every: when it chooses, what it reuses, cost; in the protocol and in replay.
#include "core/selectors/every.hpp"

#include <set>

#include "core/base/parallel.hpp"
#include "core/sim/replay.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::every_test {

SequenceOptions long_decode() {
  return SequenceOptions{.d_head = 16, .n_tokens = 70, .n_decode = 24};
}

TEST_CASE("every: chooses where n divides the position, reuses between, forces what has come") {
  const Sequence sequence = random_sequence(long_decode());
  const Budget budget = Budget::parse("tokens=9");
  for (const std::string method :
       {"quoka", "loki", "quest:page-size=4,dense-layers=0", "streamingllm"}) {
    INFO(method);
    SelectorRun plain(make_selector(method, sequence), sequence.shape, {budget});
    SelectorRun sparse(make_selector(method + "+every=4", sequence), sequence.shape, {budget});
    std::vector<std::vector<PlainSelection>> last;
    Index chosen_at = -1;
    Index chosen_end = 0;
    for (const auto& [phase, n_tok] : sequence.calls) {
      const Index begin = plain.n_keys();
      const auto own = run_call(plain, sequence, phase, n_tok);
      const auto found = run_call(sparse, sequence, phase, n_tok);
      if (phase == Phase::prefill) {
        CHECK(found == own);
        continue;
      }
      if (chosen_at < 0 || begin / 4 != chosen_at / 4) {
        chosen_at = begin;
        chosen_end = begin + n_tok;
        last = own;
        CHECK(found == own);
        continue;
      }
      for (std::size_t layer = 0; layer < own.size(); ++layer) {
        PlainSelection expected = last[layer][0];
        for (auto& list : expected.forced) {
          for (Index pos = chosen_end; pos < begin + n_tok; ++pos)
            list.push_back(static_cast<KeyPos>(pos));
        }
        CHECK(found[layer][0] == expected);
      }
    }
  }
}

TEST_CASE("every: between choices nothing is scored, and the list is held") {
  const Sequence sequence = random_sequence(long_decode());
  const Budget budget = Budget::parse("tokens=9");
  SelectorRun plain(make_selector("quoka", sequence), sequence.shape, {budget});
  SelectorRun sparse(make_selector("quoka+every=4", sequence), sequence.shape, {budget});
  std::set<Index> scoring;
  for (const auto& [phase, n_tok] : sequence.calls) {
    const Index begin = plain.n_keys();
    run_call(plain, sequence, phase, n_tok);
    run_call(sparse, sequence, phase, n_tok);
    if (phase != Phase::decode) continue;
    if (sparse.cost(0).score_flops > 0.0) {
      scoring.insert(begin);
      CHECK(sparse.cost(0).score_flops == plain.cost(0).score_flops);
    } else {
      CHECK(sparse.cost(0).score_bytes == 0.0);
    }
    CHECK(sparse.cost(0).metadata_bytes == 2 * 10 * 4);  // 2 KV heads, 9 keys and the step's own
  }
  CHECK(scoring == std::set<Index>{46, 48, 52, 56, 60, 64, 68});
}

TEST_CASE("every: a replay of some steps keeps what a replay of all steps keeps there") {
  const MemoryTrace trace = planted_trace(PlantOptions{.n_tokens = 96});
  ThreadPool pool(2);
  const std::vector<ReplayPair> pairs = {{"quoka+every=4", Budget::parse("8")},
                                         {"quest:page-size=4+every=8", Budget::parse("16")}};
  ReplayOptions options{.calls = {.phase = Phase::decode, .steps = 1000}, .dense_layers = 0};
  const auto all = replay_layers(trace, nullptr, {0, 1}, pairs, options, pool);
  options.calls.steps = 5;
  const auto some = replay_layers(trace, nullptr, {0, 1}, pairs, options, pool);
  Index n_reused = 0;
  for (std::size_t layer = 0; layer < some.size(); ++layer) {
    for (std::size_t c = 0; c < some[layer].calls.size(); ++c) {
      const auto at =
          static_cast<std::size_t>(some[layer].calls[c].begin - all[layer].calls.front().begin);
      REQUIRE(all[layer].calls[at].begin == some[layer].calls[c].begin);
      for (std::size_t p = 0; p < pairs.size(); ++p) {
        for (const ReplayMetric metric :
             {ReplayMetric::mass, ReplayMetric::kept, ReplayMetric::bytes}) {
          for (std::size_t h = 0; h < some[layer].q_heads.size(); ++h) {
            CHECK(some[layer].pairs[p].of(metric)[h * some[layer].calls.size() + c] ==
                  all[layer].pairs[p].of(metric)[h * all[layer].calls.size() + at]);
          }
        }
        n_reused += some[layer].pairs[p].of(ReplayMetric::score_flops)[c] == 0.0;
      }
    }
  }
  CHECK(n_reused > 0);
}

}  // namespace kvscope::test::every_test
