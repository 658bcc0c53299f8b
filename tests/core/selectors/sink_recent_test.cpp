// Sinks and recent keys by position.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "tests/core/selectors/sequence.hpp"

namespace kvscope::test::sink_recent_test {
namespace {

TEST_CASE("sink-recent chooses by position among the past", "[selectors]") {
  constexpr Index kBudget = 7;
  check_past_keys("sink-recent", kBudget, [](Index j, Index begin) {
    return j < 4 || j >= begin - (kBudget - std::min<Index>(4, begin));
  });
}

}  // namespace
}  // namespace kvscope::test::sink_recent_test
