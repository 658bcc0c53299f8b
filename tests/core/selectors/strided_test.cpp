// Every n-th key by position.

#include "tests/core/selectors/sequence.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::strided_test {

TEST_CASE("strided chooses by position among the past") {
  constexpr Index kBudget = 7;
  check_past_keys("strided", kBudget,
                  [](Index j, Index begin) { return j % ((begin + kBudget - 1) / kBudget) == 0; });
}

}  // namespace kvscope::test::strided_test
