// The gate of GeGLU layers against its formula in double.
#include "core/tensor/gelu_kernel.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numbers>
#include <vector>

namespace kvscope::test {

TEST_CASE("the GELU gate equals its formula, far tails included", "[kernels]") {
  constexpr std::size_t n = 64;
  std::vector<float> gate(n), up(n);
  for (std::size_t i = 0; i < n; ++i) {
    gate[i] = (static_cast<float>(i) - 31.5f) * (i % 8 == 0 ? 4.0f : 0.2f);
    up[i] = static_cast<float>(i % 5) - 2.0f;
  }
  const std::vector<float> before = gate;
  lane_gelu_gate(gate.data(), up.data(), static_cast<Index>(n));
  for (std::size_t i = 0; i < n; ++i) {
    const double x = before[i];
    const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    const double expected = 0.5 * x * (1.0 + std::tanh(u)) * static_cast<double>(up[i]);
    CHECK(std::abs(expected - static_cast<double>(gate[i])) < 2e-6 * (1.0 + std::abs(expected)));
  }
}

}  // namespace kvscope::test
