// What the cases of this area read and none changes, for the set-up entry of CTest.
#include <catch2/catch_test_macros.hpp>

#include "tests/cli/recordings.hpp"

namespace kvscope::test::set_up_test {

TEST_CASE("set-up: recordings by the program", "[.set-up]") {
  for (const int n_tokens : {96, 120, 160}) CHECK_NOTHROW(draft_recording(n_tokens, 4));
  CHECK_NOTHROW(draft_recording(160));
  CHECK_NOTHROW(recording(200, 4));
  for (const int n_tokens : {64, 96}) CHECK_NOTHROW(recording(n_tokens));
}

}  // namespace kvscope::test::set_up_test
