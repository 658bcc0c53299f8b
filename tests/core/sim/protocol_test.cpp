// The call protocol: what a run refuses, and the weights that observers get.
#include "core/selectors/registry.hpp"
#include "core/sim/attended.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::protocol_test {

TEST_CASE("a run refuses what does not fit, in a sentence") {
  const Sequence sequence = random_sequence({});
  const auto run_of = [&](const std::string& spec, std::vector<Budget> budgets) {
    return SelectorRun(make_selector(spec, sequence), sequence.shape, std::move(budgets));
  };
  CHECK_THROWS_AS(run_of("recent", {}), ConfigError);
  CHECK_THROWS_AS(run_of("recent", {{Budget::Kind::mass, 0.9}}), ConfigError);
  CHECK_THROWS_AS(run_of("tova", {{Budget::Kind::tokens, 4}, {Budget::Kind::tokens, 8}}),
                  ConfigError);
  SelectorRun run = run_of("recent", {{Budget::Kind::tokens, 4}});
  CHECK_THROWS_AS(run.begin_call(Phase::prefill, 0), ShapeError);
  CHECK_THROWS_AS(run.begin_call(Phase::prefill, 41), ShapeError);
  CHECK_THROWS_AS(run.rollback(1), ShapeError);
  run.begin_call(Phase::prefill, 10);
  const auto call = [&](Index layer, Index n_q_tok, Index n_ctx) {
    run.layer_call({.layer = layer,
                    .q = sequence.q[0].view().range(1, 0, n_q_tok),
                    .k = sequence.k[0].view().range(1, 0, n_ctx),
                    .v = sequence.v[0].view().range(1, 0, n_ctx),
                    .window = std::nullopt});
  };
  CHECK_THROWS_AS(call(0, 9, 10), ShapeError);
  CHECK_THROWS_AS(call(0, 10, 11), ShapeError);
  CHECK_THROWS_AS(call(3, 10, 10), ShapeError);
  call(1, 10, 10);
  CHECK_THROWS_AS(call(0, 10, 10), ShapeError);  // not ascending
  run.begin_call(Phase::decode, 1);
  CHECK_THROWS_AS(call(0, 1, 11), ShapeError);  // this layer missed the first call
}

TEST_CASE("observed weights are the softmax over the list, by loops") {
  const Sequence sequence = random_sequence({.n_tokens = 30, .chunk = 20, .n_decode = 10});
  for (const std::string spec :
       {"full", "recent", "minference-block-sparse:block=4,top-blocks=2", "longformer:window=3"}) {
    SelectorRun run(make_selector(spec, sequence), sequence.shape, {{Budget::Kind::tokens, 4}});
    run_call(run, sequence, Phase::prefill, 14);
    run.begin_call(Phase::prefill, 9);
    const Selection& selection = run.layer_call({.layer = 2,
                                                 .q = sequence.q[2].view().range(1, 14, 23),
                                                 .k = sequence.k[2].view().range(1, 0, 23),
                                                 .v = {},
                                                 .window = 11})[0];
    const ListProbs probs(run.last_call(), selection);
    for (Index h = 0; h < sequence.shape.n_q; ++h) {
      for (Index row = 0; row < 9; ++row) {
        const auto keys = attended_keys(selection, sequence.shape.group(), h, 14, row, 11);
        std::vector<float> weights(23);
        probs.row(h, row, weights);
        const auto expected = naive_weights(sequence, 2, h, 14 + row, {keys.begin(), keys.end()});
        for (Index j = 0; j < 23; ++j) {
          const double x = j <= 14 + row ? expected[j] : 0.0;
          CHECK(std::abs(static_cast<double>(weights[j]) - x) < 1e-6);
        }
        for (const KeyPos pos : keys) CHECK((pos > 14 + row - 11 && pos <= 14 + row));
      }
    }
  }
}

TEST_CASE("layers that are left dense, and phases that a method rests in, cost nothing") {
  const Sequence sequence = random_sequence({.n_tokens = 40, .chunk = 20});
  const auto cost = [&](const std::string& spec, Phase phase, std::optional<Index> dense_layers) {
    SelectorRun run(make_selector(spec, sequence), sequence.shape, {{Budget::Kind::tokens, 8}},
                    dense_layers);
    run_call(run, sequence, Phase::prefill, 20);
    run_call(run, sequence, phase, 1);
    const SelectCost found = run.cost(0);
    return found.score_flops + found.score_bytes + found.metadata_bytes;
  };
  for (const std::string spec : {"h2o", "keydiff", "snapkv", "tova", "quoka", "quest", "sparq"}) {
    INFO(spec);
    CHECK(cost(spec, Phase::prefill, 3) == 0.0);
    CHECK(cost(spec, Phase::prefill, 2) > 0.0);
  }
  CHECK(cost("minference-block-sparse", Phase::decode, std::nullopt) == 0.0);
  CHECK(cost("spargeattn", Phase::decode, std::nullopt) == 0.0);
}

TEST_CASE("a verification evicts for the tokens that were accepted, and for no others") {
  const Sequence sequence = random_sequence({.n_tokens = 60, .chunk = 20});
  for (const std::string spec :
       {"keydiff", "knorm", "h2o", "tova", "snapkv", "keydiff@tokens=8+tova"}) {
    INFO(spec);
    const auto made = [&] {
      SelectorRun run(make_selector(spec, sequence), sequence.shape, {{Budget::Kind::tokens, 8}});
      run_call(run, sequence, Phase::prefill, 20);
      return run;
    };
    SelectorRun run = made();
    SelectorRun alone = made();  // is asked about the accepted tokens alone
    while (run.n_keys() + 5 < 60) {
      const Index n_before = run.n_keys();
      run_call(run, sequence, Phase::verify, 5);
      if (spec != "snapkv") CHECK(run.alive(1).n_alive(0) <= 8 + 5);  // it evicts of prompts alone
      run.rollback(n_before + 2);
      run_call(alone, sequence, Phase::verify, 2);
      CHECK(alive_keys(run.alive(1), 0) == alive_keys(alone.alive(1), 0));
    }
  }
}

}  // namespace kvscope::test::protocol_test
