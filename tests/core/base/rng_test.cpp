// Random numbers by counter: fixed values, uniform, unrelated streams.
#include "core/base/rng.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>

namespace kvscope::test {
namespace {

TEST_CASE("rng: the numbers never change", "[rng]") {
  const CounterRng rng({1, 2, 3});
  CHECK(rng.bits(0) == 0x19846510274973feULL);
  CHECK(rng.bits(1) == 0xb014ae25843115a0ULL);
  CHECK(CounterRng({3, 2, 1}).bits(0) != rng.bits(0));
  CHECK(CounterRng({1, 2}).bits(0) != rng.bits(0));
  CHECK(CounterRng({1, 2, 3, 0}).bits(0) != rng.bits(0));
}

TEST_CASE("rng: uniform in every bit and unrelated between streams and counters", "[rng]") {
  constexpr int kN = 20000;
  for (int bit = 0; bit < 64; bit += 7) {
    int n_set = 0;
    int n_same_next = 0;
    int n_same_stream = 0;
    const CounterRng rng({7});
    const CounterRng other({8});
    for (std::uint64_t i = 0; i < kN; ++i) {
      const std::uint64_t x = rng.bits(i) >> bit & 1;
      n_set += static_cast<int>(x);
      n_same_next += x == (rng.bits(i + 1) >> bit & 1) ? 1 : 0;
      n_same_stream += x == (other.bits(i) >> bit & 1) ? 1 : 0;
    }
    for (const int n : {n_set, n_same_next, n_same_stream})
      CHECK(std::abs(n - kN / 2) < 350);  // five deviations
  }
}

TEST_CASE("rng: uniform and normal have their moments", "[rng]") {
  const CounterRng rng({5});
  constexpr int kN = 40000;
  double mean = 0.0;
  double normal_mean = 0.0;
  double normal_square = 0.0;
  for (std::uint64_t i = 0; i < kN; ++i) {
    const double u = rng.uniform(i);
    CHECK((u >= 0.0 && u < 1.0));
    mean += u / kN;
    normal_mean += rng.normal(i) / kN;
    normal_square += rng.normal(i) * rng.normal(i) / kN;
  }
  CHECK(std::abs(mean - 0.5) < 0.008);
  CHECK(std::abs(normal_mean) < 0.025);
  CHECK(std::abs(normal_square - 1.0) < 0.04);
}

}  // namespace
}  // namespace kvscope::test
