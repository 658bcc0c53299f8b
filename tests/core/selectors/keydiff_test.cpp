// What KeyDiff adds to its published rule, which published_lists_test.cpp holds.

#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::keydiff_test {

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
