// Stacks of selectors: evict, then select, then prune; against the stages one by one.
#include "core/selectors/stack.hpp"

#include <set>

#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::stack_test {

const Budget kTwelve{Budget::Kind::tokens, 12};

TEST_CASE("under full attention a stage answers as if alone") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Sequence sequence = random_shape_sequence(seed);
    for (const std::string spec : {"quest:page-size=4", "oracle-topk", "sparq", "quoka", "tova"}) {
      INFO(spec << ", seed " << seed);
      CHECK(run_all("full+" + spec, sequence, kTwelve) == run_all(spec, sequence, kTwelve));
    }
  }
}

// After an eviction by KeyDiff, the oracle of the remaining keys, by loops.
TEST_CASE("an oracle over an evicting stage ranks the keys that are left") {
  const Sequence sequence =
      random_sequence({.n_layers = 1, .n_tokens = 60, .chunk = 50, .n_decode = 10});
  const auto& shape = sequence.shape;
  SelectorRun alone(make_selector("keydiff", sequence), shape, {{Budget::Kind::tokens, 20}});
  SelectorRun stack(make_selector("keydiff@tokens=20+oracle-topk", sequence), shape,
                    {{Budget::Kind::tokens, 6}});
  run_call(alone, sequence, Phase::prefill, 50);
  run_call(stack, sequence, Phase::prefill, 50);
  for (Index pos = 50; pos < 60; ++pos) {
    std::vector<std::set<KeyPos>> alive;
    for (Index head = 0; head < shape.n_kv; ++head)
      alive.push_back(alive_keys(alone.alive(0), head));
    run_call(alone, sequence, Phase::decode, 1);
    stack.begin_call(Phase::decode, 1);
    const Selection& selection = stack.layer_call({.layer = 0,
                                                   .q = sequence.q[0].view().range(1, pos, pos + 1),
                                                   .k = sequence.k[0].view().range(1, 0, pos + 1),
                                                   .v = sequence.v[0].view().range(1, 0, pos + 1),
                                                   .window = std::nullopt})[0];
    REQUIRE(!selection.is_dense);
    for (Index q_head = 0; q_head < shape.n_q; ++q_head) {
      const std::set<KeyPos>& left = alive[q_head / shape.group()];
      const std::vector<KeyPos> keys =
          merged(selection.list(owner_of(selection.owner, q_head, shape.group()), 0));
      for (const KeyPos key : keys) CHECK((key == pos || left.contains(key)));
      if (selection.owner != ListOwner::q_head) continue;
      std::set<KeyPos> allowed = left;
      allowed.insert(static_cast<KeyPos>(pos));  // the query's own key competes like all others
      const auto weights = naive_weights(sequence, 0, q_head, pos, allowed);
      CHECK(std::set<KeyPos>(keys.begin(), keys.end()) == naive_best(weights, allowed, 6));
    }
    for (Index head = 0; head < shape.n_kv; ++head)
      CHECK(alive_keys(stack.alive(0), head) == alive_keys(alone.alive(0), head));
  }
}

TEST_CASE("stages of a stack are charged for the keys that they were left") {
  const Sequence sequence = random_sequence({.n_tokens = 40, .chunk = 32, .n_decode = 0});
  const auto costs = [&](const std::string& spec) {
    SelectorRun run(make_selector(spec, sequence), sequence.shape, {{Budget::Kind::tokens, 8}});
    run_call(run, sequence, Phase::prefill, 32);
    run_call(run, sequence, Phase::prefill, 8);
    return run.cost(0);
  };
  // The second chunk: 32 past keys of each KV head, of which KeyDiff has left 20, and 8 queries.
  // QuoKA, 4 of them: cosines 4 x 4 x 8 x 8, then per key a norm (24), 4 products (64) and their
  // maximum (4). KeyDiff: 32 per key, the chunk's own included.
  const SelectCost quoka = costs("quoka:n-queries=4");
  CHECK(quoka.score_flops == 1024.0 + 64 * 92.0);
  const SelectCost evicted = costs("keydiff@tokens=20+quoka:n-queries=4");
  CHECK(evicted.score_flops == 1024.0 + 40 * 92.0 + 56 * 32.0);
  CHECK(evicted.score_bytes == 40 * 16.0 + 56 * 16.0);
  // Hidden keys are not scored, but SparQ's second copy of them is held.
  const SelectCost hidden = costs("recent@tokens=20+sparq:n-channels=4");
  CHECK(hidden.score_flops == 4 * 8 * 20 * 8.0);
  CHECK(hidden.score_bytes == 40 * 8.0);
  CHECK(hidden.metadata_bytes == 80 * 16.0 + 32.0);
}

}  // namespace kvscope::test::stack_test
