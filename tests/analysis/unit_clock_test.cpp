// Seconds of units from two that were timed.
#include "analysis/unit_clock.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

namespace kvscope::test::unit_clock_test {
namespace {

TEST_CASE("two measurements make a line, or a factor where no line can be") {
  const auto at = [](const UnitClock& clock, double guess) {
    UnitCost cost;
    cost.predicted_seconds = guess;
    return clock.seconds(cost);
  };
  CHECK(std::isnan(at({}, 1.0)));
  const auto line = UnitClock::through(1.0, 3.0, 5.0, 11.0);  // 1 + 2 x
  CHECK(at(line, 3.0) == 7.0);
  const auto same = UnitClock::through(2.0, 3.0, 2.0, 5.0);
  CHECK(at(same, 2.0) == 4.0);
  const auto steep = UnitClock::through(1.0, 1.0, 2.0, 10.0);  // below 0 at 0: a factor
  CHECK(at(steep, 3.0) == 11.0);
  const auto falling = UnitClock::through(1.0, 3.0, 10.0, 1.0);
  CHECK(at(falling, 100.0) == 2.0);
}

}  // namespace
}  // namespace kvscope::test::unit_clock_test
