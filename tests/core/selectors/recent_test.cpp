// Recent keys by position.

#include "tests/core/selectors/sequence.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::recent_test {

TEST_CASE("recent chooses by position among the past") {
  constexpr Index kBudget = 7;
  check_past_keys("recent", kBudget, [](Index j, Index begin) { return j >= begin - kBudget; });
}

}  // namespace kvscope::test::recent_test
