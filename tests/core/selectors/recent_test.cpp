// Recent keys by position.
#include <catch2/catch_test_macros.hpp>

#include "tests/core/selectors/sequence.hpp"

namespace kvscope::test::recent_test {

TEST_CASE("recent chooses by position among the past") {
  constexpr Index kBudget = 7;
  check_past_keys("recent", kBudget, [](Index j, Index begin) { return j >= begin - kBudget; });
}

}  // namespace kvscope::test::recent_test
