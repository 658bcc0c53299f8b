// Rounding of scores against tables of every representable number, and against the storage
// conversion of bf16.
#include "core/attention/rounded_scores.hpp"

#include <cstring>
#include <random>

#include "core/tensor/dtype.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::rounded_scores_test {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// All finite numbers of e4m3 by its encoding, ascending: S.1111.111 is NaN.
std::vector<double> all_e4m3() {
  std::vector<double> all;
  for (int code = 0; code < 127; ++code) {
    const int exponent = code / 8;
    const double mantissa = code % 8;
    const double x =
        exponent == 0 ? std::ldexp(mantissa / 8, -6) : std::ldexp(1 + mantissa / 8, exponent - 7);
    all.push_back(x);
    if (x != 0.0) all.push_back(-x);
  }
  std::ranges::sort(all);
  return all;
}

/// The nearest of the table; of two, the one with an even last bit (an even place among the numbers
/// of its sign).
double nearest_e4m3(double x) {
  const std::vector<double> all = all_e4m3();
  double best = all.front();
  for (const double y : all) {
    const double a = std::abs(x - y);
    const double b = std::abs(x - best);
    const auto is_even = [](double z) {
      const double step = std::ldexp(1.0, std::max(z == 0.0 ? -6 : std::ilogb(z), -6) - 3);
      return std::fmod(std::abs(z) / step, 2.0) == 0.0;
    };
    if (a < b || (a == b && is_even(y))) best = y;
  }
  return best;
}

TEST_CASE("e4m3: every number stays, every other goes to the nearest, ties to even") {
  for (const double x : all_e4m3()) CHECK(rounded_score(x, ScoreType::fp8) == x);
  CHECK(all_e4m3().back() == 448.0);
  std::mt19937 rng(3);
  std::uniform_real_distribution<double> exponent(-12.0, 9.5);
  for (int i = 0; i < 4000; ++i) {
    const double x = (i % 2 == 0 ? 1.0 : -1.0) * std::exp2(exponent(rng));
    CHECK(rounded_score(x, ScoreType::fp8) == nearest_e4m3(x));
  }
  const std::vector<double> all = all_e4m3();
  for (std::size_t i = 1; i < all.size(); ++i) {  // exactly between two neighbours
    const double x = (all[i - 1] + all[i]) / 2;
    CHECK(rounded_score(x, ScoreType::fp8) == nearest_e4m3(x));
  }
  CHECK(rounded_score(1e30, ScoreType::fp8) == 448.0);
  CHECK(rounded_score(-465.0, ScoreType::fp8) == -448.0);
  // Half of the least: ties to even.
  CHECK(rounded_score(std::ldexp(1.0, -10), ScoreType::fp8) == 0.0);
}

TEST_CASE("bf16 and f32 are what the storage conversions give") {
  std::mt19937 rng(4);
  std::uniform_int_distribution<std::uint32_t> bits;
  for (int i = 0; i < 20000; ++i) {
    const std::uint32_t word = bits(rng);
    float x;
    std::memcpy(&x, &word, sizeof x);
    if (!std::isfinite(x) || std::abs(x) > 3.38e38f) continue;
    std::uint16_t stored;
    float back;
    from_float(&x, DType::bf16, &stored, 1);
    to_float(DType::bf16, &stored, &back, 1);
    CHECK(rounded_score(static_cast<double>(x), ScoreType::bf16) == static_cast<double>(back));
    const double y = static_cast<double>(x) * (1.0 + 1e-9 * i);
    if (std::abs(y) < 3.4e38)
      CHECK(rounded_score(y, ScoreType::f32) == static_cast<double>(static_cast<float>(y)));
  }
  CHECK(rounded_score(1e300, ScoreType::bf16) == 0x1.FEp127);
  CHECK(rounded_score(1e300, ScoreType::f32) ==
        static_cast<double>(std::numeric_limits<float>::max()));
}

TEST_CASE("what is no number stays; steps are the distances of neighbours") {
  for (const ScoreType type : {ScoreType::f64, ScoreType::f32, ScoreType::bf16, ScoreType::fp8}) {
    CHECK(rounded_score(-kInf, type) == -kInf);
    CHECK(rounded_score(kInf, type) == kInf);
    CHECK(std::isnan(rounded_score(std::nan(""), type)));
    CHECK(rounded_score(0.0, type) == 0.0);
    CHECK(rounding_step(-kInf, type) == 0.0);
  }
  CHECK(rounded_score(0.1, ScoreType::f64) == 0.1);
  CHECK(rounding_step(1.0, ScoreType::fp8) == 0.125);
  CHECK(rounding_step(-300.0, ScoreType::fp8) == 32.0);
  CHECK(rounding_step(1.5, ScoreType::bf16) == std::ldexp(1.0, -7));
  CHECK(rounding_step(1.5, ScoreType::f32) == std::ldexp(1.0, -23));
  CHECK(rounding_step(1.5, ScoreType::f64) == 0.0);
}

TEST_CASE("a row in fp8 is scaled by a power of two that just fits") {
  const auto scaled = [](std::vector<double> row) { return row_scale(row, ScoreType::fp8); };
  CHECK(scaled({448.0, 1.0}) == 1.0);
  CHECK(scaled({448.1, -kInf}) == 2.0);
  CHECK(scaled({0.0, -kInf}) == 1.0);
  CHECK(scaled({-900.0}) == 4.0);
  CHECK(scaled({0.875}) == std::ldexp(1.0, -9));
  CHECK(scaled({std::nan(""), 448.0}) == 1.0);
  CHECK(row_scale(std::vector<double>{1e6}, ScoreType::bf16) == 1.0);
  std::vector<double> row = {1000.0, 1010.0, -kInf, 3.0, std::nan("")};
  round_scores(row, ScoreType::fp8);  // scale 4: 250 and 252.5 lie between 240 and 256
  CHECK(row[0] == 1024.0);
  CHECK(row[1] == 1024.0);
  CHECK(row[2] == -kInf);
  CHECK(row[3] == 3.0);
  CHECK(std::isnan(row[4]));
}

}  // namespace kvscope::test::rounded_scores_test
