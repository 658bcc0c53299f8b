// Sinks and recent keys by position.
#include "tests/core/selectors/kit.hpp"

namespace kvscope::test::sink_recent_test {

TEST_CASE("sink-recent chooses by position among the past") {
  constexpr Index kBudget = 7;
  check_past_keys("sink-recent", kBudget, [](Index j, Index begin) {
    return j < 4 || j >= begin - (kBudget - std::min<Index>(4, begin));
  });
}

}  // namespace kvscope::test::sink_recent_test
