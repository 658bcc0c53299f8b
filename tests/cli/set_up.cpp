// What the cases of this area read and none changes, for the set-up entry of CTest.

#include "tests/cli/recordings.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::set_up_test {

TEST_CASE("set-up: recordings by the program", "[.set-up]") {
  for (const int n_tokens : {96, 120, 160}) CHECK_NOTHROW(draft_recording(n_tokens, 4));
  CHECK_NOTHROW(draft_recording(160));
  CHECK_NOTHROW(recording(200, 4));
  for (const int n_tokens : {64, 96}) CHECK_NOTHROW(recording(n_tokens));
}

}  // namespace kvscope::test::set_up_test
