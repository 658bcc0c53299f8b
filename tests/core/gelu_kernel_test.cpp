// The gate of GeGLU layers, GELU alone and norms that take the mean away, against their
// formulas in double.
#include "core/tensor/gelu_kernel.hpp"
#include "core/tensor/layer_norm_kernel.hpp"
#include "tests/support/test.hpp"

#include <numbers>

namespace kvscope::test::gelu_kernel_test {

TEST_CASE("the GELU gate equals its formula, far tails included") {
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

TEST_CASE("GELU without a gate equals its formula, far tails included") {
  std::vector<float> values;
  for (int i = -60; i <= 60; ++i) values.push_back(static_cast<float>(i) * 0.25f);
  const std::vector<float> before = values;
  lane_gelu(values.data(), static_cast<Index>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = before[i];
    const double expected = 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
    CHECK(std::abs(expected - static_cast<double>(values[i])) < 2e-6 * (1.0 + std::abs(expected)));
  }
}

TEST_CASE("the layer norm of every lane equals its formula, whatever the other lanes hold") {
  for (const Index lanes : {16, 32}) {
    for (const Index n : {1, 5, 48}) {
      std::vector<float> x(static_cast<std::size_t>(n * lanes)), weight, bias;
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = 100.0f * static_cast<float>(i % 3) +
               static_cast<float>((i * 37 + i * i / 5) % 101) / 7.0f;
      for (Index f = 0; f < n; ++f) {
        weight.push_back(0.5f + static_cast<float>(f % 4));
        bias.push_back(static_cast<float>(f % 7) - 3.0f);
      }
      const double eps = 1e-3;
      std::vector<float> y(x.size());
      lane_layer_norm(x.data(), weight.data(), bias.data(), n, static_cast<float>(eps), y.data(),
                      lanes);
      for (Index lane = 0; lane < lanes; ++lane) {
        const auto at = [&](Index f) { return static_cast<std::size_t>(f * lanes + lane); };
        double mean = 0.0, variance = 0.0;
        for (Index f = 0; f < n; ++f)
          mean += static_cast<double>(x[at(f)]) / static_cast<double>(n);
        for (Index f = 0; f < n; ++f)
          variance += std::pow(static_cast<double>(x[at(f)]) - mean, 2) / static_cast<double>(n);
        for (Index f = 0; f < n; ++f) {
          const auto i = static_cast<std::size_t>(f);
          const double expected = (static_cast<double>(x[at(f)]) - mean) /
                                      std::sqrt(variance + eps) * static_cast<double>(weight[i]) +
                                  static_cast<double>(bias[i]);
          CHECK(std::abs(expected - static_cast<double>(y[at(f)])) <
                2e-5 * (1.0 + std::abs(expected)));
        }
      }
      std::vector<float> in_place = x;
      lane_layer_norm(in_place.data(), weight.data(), bias.data(), n, static_cast<float>(eps),
                      in_place.data(), lanes);
      CHECK(in_place == y);
    }
  }
}

}  // namespace kvscope::test::gelu_kernel_test
