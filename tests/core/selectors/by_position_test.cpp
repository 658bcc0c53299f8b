// Controls that choose by position alone: recent keys, sinks and recent keys, every n-th key.

#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::by_position_test {

constexpr Index kBudget = 7;

TEST_CASE("recent chooses by position among the past") {
  check_past_keys("recent", kBudget, [](Index j, Index begin) { return j >= begin - kBudget; });
}

TEST_CASE("sink-recent chooses by position among the past") {
  check_past_keys("sink-recent", kBudget, [](Index j, Index begin) {
    return j < 4 || j >= begin - (kBudget - std::min<Index>(4, begin));
  });
}

TEST_CASE("strided chooses by position among the past") {
  check_past_keys("strided", kBudget,
                  [](Index j, Index begin) { return j % ((begin + kBudget - 1) / kBudget) == 0; });
}

}  // namespace kvscope::test::by_position_test
