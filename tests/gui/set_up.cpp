// What the cases of this area read and none changes, for the set-up entry of CTest.
#include <catch2/catch_test_macros.hpp>

#include "tests/gui/app_rig.hpp"

namespace kvscope::gui::test::set_up_test {

TEST_CASE("set-up: recordings of the embedded models", "[.set-up]") {
  for (const bool draft : {false, true}) {
    CHECK_NOTHROW(embedded_trace(draft));
    CHECK_NOTHROW(embedded_trace(draft, 96, 0));
  }
  CHECK_NOTHROW(embedded_trace(/*draft=*/false, 96, 4));
  CHECK_NOTHROW(embedded_trace(/*draft=*/false, 1500, 0));
}

}  // namespace kvscope::gui::test::set_up_test
