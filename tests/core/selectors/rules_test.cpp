// What methods do with keys that are all alike, and with keys that are forced.
#include "core/selectors/candidates.hpp"
#include "tests/core/selectors/kit.hpp"

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

TEST_CASE("forced keys leave the scored part") {
  KeyList list{{1, 4, 6, 9}, {2}, {}};
  const std::vector<KeyPos> forced = {4, 9, 12};
  force_keys(list, forced);
  CHECK(list.scored == std::vector<KeyPos>{1, 6});
  CHECK(list.forced == std::vector<KeyPos>{2, 4, 9, 12});
}

}  // namespace kvscope::test::rules_test
