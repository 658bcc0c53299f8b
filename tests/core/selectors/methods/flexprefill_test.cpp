// FlexPrefill where the original's 0 * log 0 would be no number; its lists are those of the public
// program (prefill_blocks_test).
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::flexprefill_test {

TEST_CASE("flexprefill: a block without any attention leaves the divergence a number") {
  // Two blocks of 8 whose scores are 4000 below the rest: their truth and their estimate underflow
  // to 0. The others agree with their means exactly, so the head is query-aware; 0 * log 0 as NaN
  // would make it vertical-slash.
  CallFixture fixture({.n_q = 1, .n_kv = 1, .d_head = 16, .n_past = 56, .n_tok = 8});
  for (Index row = 0; row < 8; ++row) {
    for (Index c = 0; c < 16; ++c) fixture.q(0, row, c) = c == 0 ? 40.0f : 0.0f;
  }
  for (Index t = 0; t < 64; ++t) {
    for (Index c = 0; c < 16; ++c)
      fixture.k(0, t, c) = c == 0 && (t / 8 == 2 || t / 8 == 4) ? -400.0f : 0.0f;
  }
  const Selection aware =
      made("flexprefill:block=8,gamma=0.5,tau=0.2,min-budget=8", fixture)->select(fixture.call);
  // as a vertical-slash head it would keep these blocks
  const Selection other =
      made("flexprefill:block=8,gamma=0.5,tau=0,min-budget=8", fixture)->select(fixture.call);
  CHECK(merged(aware.list(0, 0)) != merged(other.list(0, 0)));
}

}  // namespace kvscope::test::flexprefill_test
