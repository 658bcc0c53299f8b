#include "core/base/parallel.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <vector>

using namespace kvscope;

TEST_CASE("every index runs exactly once, for any thread count", "[parallel]") {
  for (const int n_threads : {1, 2, 5}) {
    ThreadPool pool(n_threads);
    CHECK(pool.n_threads() == n_threads);
    for (const std::int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> count(static_cast<std::size_t>(n));
      pool.parallel_for(n, [&](std::int64_t i, int worker) {
        if (worker < 0 || worker >= n_threads) throw std::logic_error("worker out of range");
        ++count[static_cast<std::size_t>(i)];
      });
      for (const auto& c : count) REQUIRE(c == 1);
    }
  }
}

TEST_CASE("an exception in the body comes out of the loop, and the pool works on", "[parallel]") {
  ThreadPool pool(3);
  const auto failing = [](std::int64_t i, int) {
    if (i == 40) throw std::runtime_error("forty");
  };
  CHECK_THROWS_AS(pool.parallel_for(100, failing), std::runtime_error);
  std::atomic<int> n = 0;
  pool.parallel_for(10, [&](std::int64_t, int) { ++n; });
  CHECK(n == 10);
}
