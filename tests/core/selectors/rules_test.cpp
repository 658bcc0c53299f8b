// What methods do with keys that are all alike.

#include "tests/core/selectors/call_fixture.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::rules_test {

TEST_CASE("zero queries and zero keys give no NaN and deterministic ties") {
  CallFixture fixture({.n_past = 30, .n_tok = 3});
  std::ranges::fill(fixture.q.flat(), 0.0f);
  std::ranges::fill(fixture.k.flat(), 0.0f);
  fixture.call.budget = Budget::parse("tokens=4");
  for (const std::string_view spec :
       {"quoka", "sampleattention", "sparq", "loki:basis=self", "oracle-topk-chunk"}) {
    INFO(spec);
    CHECK(made(spec, fixture)->select(fixture.call).at(0).scored() == positions(0, 4));
  }
}

}  // namespace kvscope::test::rules_test
