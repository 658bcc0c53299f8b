// Random numbers by counter: fixed values, uniform and normal ones.
#include "core/base/rng.hpp"

#include "core/base/splitmix64.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::rng_test {

TEST_CASE("rng: SplitMix64 gives the published generator's numbers for seed 0") {
  CHECK(splitmix64_mix(1 * kSplitMix64Step) == 0xe220a8397b1dcdafULL);
  CHECK(splitmix64_mix(2 * kSplitMix64Step) == 0x6e789e6aa1b965f4ULL);
  CHECK(splitmix64_mix(3 * kSplitMix64Step) == 0x06c45d188009454fULL);
}

TEST_CASE("rng: the numbers never change") {
  const CounterRng rng({1, 2, 3});
  CHECK(rng.bits(0) == 0x19846510274973feULL);
  CHECK(rng.bits(1) == 0xb014ae25843115a0ULL);
  CHECK(CounterRng({3, 2, 1}).bits(0) != rng.bits(0));
  CHECK(CounterRng({1, 2}).bits(0) != rng.bits(0));
  CHECK(CounterRng({1, 2, 3, 0}).bits(0) != rng.bits(0));
}

TEST_CASE("rng: uniform and normal have their moments") {
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

}  // namespace kvscope::test::rng_test
