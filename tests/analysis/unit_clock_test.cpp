// Seconds of units from two that were timed, and their memory.
#include "analysis/units/unit_clock.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "analysis/units/unit_cost.hpp"

namespace kvscope::test::unit_clock_test {

TEST_CASE("two measurements make a line, or a factor where no line can be") {
  const auto at = [](const UnitClock& clock, double guess) {
    return clock.seconds(UnitCost{.predicted_seconds = guess});
  };
  CHECK(std::isnan(at({}, 1.0)));
  const auto line = UnitClock::through(1.0, 3.0, 5.0, 11.0);  // 1 + 2 x
  CHECK(at(line, 3.0) == 7.0);
  CHECK(at(UnitClock::through(2.0, 3.0, 2.0, 5.0), 2.0) == 4.0);
  const auto steep = UnitClock::through(1.0, 1.0, 2.0, 10.0);  // below 0 at 0: a factor
  CHECK(at(steep, 3.0) == 11.0);
  CHECK(at(UnitClock::through(1.0, 3.0, 10.0, 1.0), 100.0) == 2.0);
}

TEST_CASE("a unit's memory holds a call's scores for every key") {
  TraceInfo info{.d_head = 64, .rows = {0, 16384}, .n_tokens = 16384};
  for (Index h = 0; h < 8; ++h) info.q_heads.push_back(h);
  info.kv_heads = {0, 1};
  info.n_kv = 2;
  const auto memory = [&](Index n, bool by_head = false) {
    const TokenRange call[] = {{16384 - n, 16384}};
    return replay_unit_cost(info, "t.h5", {3}, 4, call, 8, {}, by_head).predicted_memory;
  };
  const double keys = 64.0 * 2 * 16384 * (4 + 4 + 8);
  CHECK(memory(1) == keys + 64.0 * 8 * 4 + 8.0 * 16384);
  CHECK(memory(128) == keys + 128 * (64.0 * 8 * 4 + 8.0 * 16384));
  CHECK(memory(128, true) == keys / 2 + 128 * (64.0 * 4 * 4 + 8.0 * 16384));
}

}  // namespace kvscope::test::unit_clock_test
