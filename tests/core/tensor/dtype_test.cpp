// Conversions of f16 and bf16 against a naive reading of every bit pattern.
#include "core/tensor/dtype.hpp"
#include "core/base/enum_names.hpp"

#include <bit>
#include <cstdint>
#include <random>

#include "tests/support/test.hpp"

namespace kvscope::dtype_test {

// A format of 1 sign bit, `exponent_bits` and `mantissa_bits`, by the definition and in double.
struct NaiveFormat {
  int exponent_bits;
  int mantissa_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  unsigned exponent_mask() const { return (1u << exponent_bits) - 1; }
  unsigned mantissa_mask() const { return (1u << mantissa_bits) - 1; }

  double value(std::uint16_t bits) const {
    const unsigned exponent = (bits >> mantissa_bits) & exponent_mask();
    const unsigned mantissa = bits & mantissa_mask();
    const double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
    if (exponent == exponent_mask()) {
      return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                           : sign * std::numeric_limits<double>::infinity();
    }
    const double fraction = mantissa / std::ldexp(1.0, mantissa_bits);
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias());
    return sign * std::ldexp(1.0 + fraction, static_cast<int>(exponent) - bias());
  }

  // The pattern nearest to x, even mantissa among equals: search over all patterns of x's sign.
  std::uint16_t nearest(float x) const {
    const unsigned sign = std::signbit(x) ? 0x8000u : 0u;
    const double magnitude = std::fabs(static_cast<double>(x));
    const unsigned infinity = exponent_mask() << mantissa_bits;
    // Patterns of one sign are ordered like their values: bisect for the last one <= magnitude.
    unsigned low = 0, high = infinity;
    while (low < high) {
      const unsigned middle = (low + high + 1) / 2;
      if (value(static_cast<std::uint16_t>(middle)) <= magnitude) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    if (low == infinity) return static_cast<std::uint16_t>(sign | infinity);
    // One past the largest finite value counts as the next power of two, which then means infinity.
    const double below = value(static_cast<std::uint16_t>(low));
    const double above = low + 1 == infinity
                             ? std::ldexp(1.0, static_cast<int>(exponent_mask()) - bias())
                             : value(static_cast<std::uint16_t>(low + 1));
    const double to_below = magnitude - below, to_above = above - magnitude;
    const bool up = to_above < to_below || (to_above == to_below && low % 2 == 1);
    return static_cast<std::uint16_t>(sign | (up ? low + 1 : low));
  }
};

constexpr NaiveFormat kHalf{5, 10};
constexpr NaiveFormat kBfloat{8, 7};

const NaiveFormat& naive(DType dtype) {
  return dtype == DType::f16 ? kHalf : kBfloat;
}

std::vector<std::uint16_t> narrowed(const std::vector<float>& values, DType dtype) {
  std::vector<std::uint16_t> out(values.size());
  from_float(values.data(), dtype, out.data(), values.size());
  return out;
}

bool is_nan(const NaiveFormat& format, std::uint16_t bits) {
  return ((bits >> format.mantissa_bits) & format.exponent_mask()) == format.exponent_mask() &&
         (bits & format.mantissa_mask()) != 0;
}

TEST_CASE("all 65536 patterns widen exactly and come back as they were") {
  for (DType dtype : {DType::f16, DType::bf16}) {
    std::vector<std::uint16_t> patterns(65536);
    for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
    std::vector<float> wide(patterns.size());
    to_float(dtype, patterns.data(), wide.data(), patterns.size());
    const std::vector<std::uint16_t> back = narrowed(wide, dtype);
    int wrong = 0;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const double expected = naive(dtype).value(patterns[i]);
      if (std::isnan(expected)) {
        wrong += !std::isnan(wide[i]) || !is_nan(naive(dtype), back[i]);
        wrong += std::signbit(wide[i]) != (patterns[i] >> 15 != 0);
      } else {
        wrong += static_cast<double>(wide[i]) != expected;
        wrong += std::signbit(wide[i]) != std::signbit(expected);
        wrong += back[i] != patterns[i];
      }
    }
    CAPTURE(enum_name(dtype));
    CHECK(wrong == 0);
  }
}

TEST_CASE("rounding: every boundary between two patterns, and its neighbours") {
  for (DType dtype : {DType::f16, DType::bf16}) {
    const NaiveFormat& format = naive(dtype);
    const unsigned infinity = format.exponent_mask() << format.mantissa_bits;
    std::vector<float> values;
    for (unsigned low = 0; low < infinity; ++low) {
      const double below = format.value(static_cast<std::uint16_t>(low));
      const double above =
          low + 1 == infinity
              ? std::ldexp(1.0, static_cast<int>(format.exponent_mask()) - format.bias())
              : format.value(static_cast<std::uint16_t>(low + 1));
      const auto middle = static_cast<float>(below / 2 + above / 2);
      for (float x : {middle, std::nextafterf(middle, 0.0f), std::nextafterf(middle, INFINITY)}) {
        values.push_back(x);
        values.push_back(-x);
      }
    }
    const std::vector<std::uint16_t> found = narrowed(values, dtype);
    int wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) wrong += found[i] != format.nearest(values[i]);
    CAPTURE(enum_name(dtype));
    CHECK(wrong == 0);
  }
}

TEST_CASE("rounding: random bit patterns of float, infinities, NaN and subnormals") {
  std::mt19937 random(7);
  std::vector<float> values = {
      0.0f,
      -0.0f,
      INFINITY,
      -INFINITY,
      std::numeric_limits<float>::max(),
      std::numeric_limits<float>::denorm_min(),
      65504.0f,
      65519.996f,
      65520.0f,
      -65520.0f,
      1e-8f,
      -1e-8f,
      0x1p-24f,
      0x1p-25f,
      0x1.000002p-25f,
      std::bit_cast<float>(0x7f800001u),  // payloads in the dropped bits alone
      std::bit_cast<float>(0xff800001u)};
  for (int i = 0; i < 200000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (DType dtype : {DType::f16, DType::bf16}) {
    const std::vector<std::uint16_t> found = narrowed(values, dtype);
    int wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) {
        wrong += !is_nan(naive(dtype), found[i]);
      } else {
        wrong += found[i] != naive(dtype).nearest(values[i]);
      }
    }
    CAPTURE(enum_name(dtype));
    CHECK(wrong == 0);
  }
}

TEST_CASE("conversions work for any length and alignment and write nothing else") {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const std::size_t size = size_of(dtype);
    for (std::size_t n = 0; n <= 67; ++n) {
      std::vector<float> values(n);
      for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i) - 20.0f;
      std::vector<unsigned char> stored(n * size + 2, 0xab);
      from_float(values.data(), dtype, stored.data() + 1, n);  // odd address
      CHECK(stored.front() == 0xab);
      CHECK(stored.back() == 0xab);
      std::vector<float> back(n + 1, -1234.5f);
      to_float(dtype, stored.data() + 1, back.data(), n);
      CHECK(back.back() == -1234.5f);
      back.pop_back();
      CHECK(back == values);
    }
  }
}

}  // namespace kvscope::dtype_test
