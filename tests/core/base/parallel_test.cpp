// Parallel loops: every index once, errors come out, loops within loops, machines without threads.
#include "core/base/parallel.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/test.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace kvscope::test::parallel_test {

TEST_CASE("every index runs exactly once, for any thread count") {
  for (const int n_threads : {1, 2, 5}) {
    ThreadPool pool(n_threads);
    CHECK(pool.n_threads() == n_threads);
    for (const std::int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> count(static_cast<std::size_t>(n));
      pool.parallel_for(n, [&](std::int64_t i, int worker) {
        if (worker < 0 || worker >= n_threads) throw std::logic_error("worker out of range");
        ++count[i];
      });
      for (const auto& c : count) REQUIRE(c == 1);
    }
  }
}

TEST_CASE("an exception in the body comes out of the loop, and the pool works on") {
  ThreadPool pool(3);
  const auto failing = [](std::int64_t i, int) {
    if (i == 40) throw std::runtime_error("forty");
  };
  CHECK_THROWS_AS(pool.parallel_for(100, failing), std::runtime_error);
  std::atomic<int> n = 0;
  pool.parallel_for(10, [&](std::int64_t, int) { ++n; });
  CHECK(n == 10);
}

TEST_CASE("of several indices that fail, the first one's exception comes out") {
  for (const int n_threads : {1, 2, 5}) {
    ThreadPool pool(n_threads);
    for (int round = 0; round < 200; ++round) {
      try {
        pool.parallel_for(100, [](std::int64_t i, int) {
          if (i < 3) return;
          if (i == 3) std::this_thread::sleep_for(std::chrono::microseconds(50));
          throw std::runtime_error(std::to_string(i));
        });
      } catch (const std::runtime_error& error) {
        REQUIRE(std::string(error.what()) == "3");
      }
    }
  }
}

TEST_CASE("a loop within a loop runs inline, as the worker it is in") {
  for (const int n_threads : {1, 2, 5}) {
    ThreadPool pool(n_threads);
    std::atomic<int> sum = 0;
    std::atomic<int> n_foreign = 0;
    for (int round = 0; round < 20; ++round) {
      pool.parallel_for(9, [&](std::int64_t, int outer) {
        pool.parallel_for(7, [&](std::int64_t, int inner) {
          n_foreign += inner != outer;
          pool.parallel_for(3, [&](std::int64_t i, int) { sum += static_cast<int>(i) + 1; });
        });
      });
    }
    CHECK(sum == 20 * 9 * 7 * 6);
    CHECK(n_foreign == 0);
  }
}

TEST_CASE("loops that end while others still wake up run each index once") {
  ThreadPool pool(5);
  for (int round = 0; round < 400; ++round) {
    // from no pause at all to one after which everybody sleeps
    std::this_thread::sleep_for(std::chrono::microseconds(round % 8 * 100));
    for (const int n : {2, 3, 40}) {
      std::vector<int> values(static_cast<std::size_t>(n), -1);
      pool.parallel_for(n, [&](std::int64_t i, int) { values[i] += static_cast<int>(i) + 1; });
      for (int i = 0; i < n; ++i) REQUIRE(values[i] == i);
    }
  }
}

TEST_CASE("two threads may use one pool at once") {
  ThreadPool pool(3);
  std::atomic<int> n = 0;
  const auto work = [&] {
    for (int round = 0; round < 200; ++round) pool.parallel_for(5, [&](std::int64_t, int) { ++n; });
  };
  {
    const std::jthread other(work);
    work();
  }
  CHECK(n == 2 * 200 * 5);
}

TEST_CASE("an absurd number of threads is a sensible one") {
  ThreadPool pool(100000);
  CHECK(pool.n_threads() >= 1);
  CHECK(pool.n_threads() <= std::max(64, 4 * available_cores()));
}

TEST_CASE("where threads cannot be started, a pool works with those it has") {
  if (test::kSanitizer) SKIP("a sanitizer needs more address space than this leaves");
  // A child of its own with too little address space for the stacks; an alarm ends a hang.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(20);
    const rlimit room{rlim_t{400} << 20, rlim_t{400} << 20};
    if (::setrlimit(RLIMIT_AS, &room) != 0) ::_exit(2);
    std::atomic<int> n = 0;
    {
      ThreadPool pool(64);
      if (pool.n_threads() == 64) ::_exit(3);
      pool.parallel_for(1000, [&](std::int64_t, int) { ++n; });
    }
    ::_exit(n == 1000 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace kvscope::test::parallel_test
