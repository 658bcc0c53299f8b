// A process beside this one is seen, this one's own work is not.
#include "core/base/other_load.hpp"

#include "tests/support/test.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace kvscope::test::other_load_test {

TEST_CASE("what others do with the processors is told from what this program does") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    volatile int i = 0;
    for (;;) i = i + 1;
  }
  const OtherLoad others;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const double beside = others.cores();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(beside > 0.2);  // half of a core at least, however busy the machine is
  CHECK(beside <= 1.1 * std::thread::hardware_concurrency() + 0.1);
}

}  // namespace kvscope::test::other_load_test
