// KeyDiff against cosines by loops.
#include "tests/core/selectors/kit.hpp"

namespace kvscope::test::keydiff_test {

TEST_CASE("keydiff: copies leave first, an outlier stays") {
  Sequence sequence =
      random_sequence({.n_layers = 1, .n_kv = 1, .n_tokens = 20, .chunk = 20, .n_decode = 0});
  Tensor<float>& k = sequence.k[0];
  for (Index j = 0; j < 20; ++j) {
    for (Index c = 0; c < k.dim(2); ++c) k(Index{0}, j, c) = c == (j == 7 ? 1 : 0) ? 1.0f : 0.0f;
  }
  SelectorRun run(make_selector("keydiff", sequence), sequence.shape,
                  {{Budget::Kind::tokens, 3.0}});
  run_call(run, sequence, Phase::prefill, 20);
  CHECK(alive_keys(run.alive(0), 0) == std::set<KeyPos>{0, 1, 7});  // of equal keys the first ones
}

TEST_CASE("keydiff: a share of the budget for recent keys") {
  const Sequence sequence = random_sequence({.n_tokens = 30, .chunk = 30, .n_decode = 0});
  SelectorRun run(make_selector("keydiff:recent-share=0.5", sequence), sequence.shape,
                  {{Budget::Kind::tokens, 8.0}});
  run_call(run, sequence, Phase::prefill, 30);
  const auto alive = alive_keys(run.alive(0), 1);
  CHECK(alive.size() == 8);
  for (const KeyPos pos : {26, 27, 28, 29}) CHECK(alive.contains(pos));
}

}  // namespace kvscope::test::keydiff_test
