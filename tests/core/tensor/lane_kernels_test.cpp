// The lane kernels against loops in double, on every instruction set of this machine.
#include <hwy/targets.h>
#include <random>

#include "core/tensor/lane_kernels.hpp"
#include "support/only_target.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::lane_kernels_test {

void fill(Tensor<float>& tensor, std::mt19937& rng, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  for (float& x : tensor.flat()) x = normal(rng);
}

TEST_CASE("products, norms and SwiGLU equal plain loops on every instruction set") {
  for (const std::int64_t target : test::testable_targets()) {
    DYNAMIC_SECTION(hwy::TargetName(target)) {
      const test::OnlyTarget only(target);
      const Index lanes = GENERATE(kNarrowLanes, kWideLanes);
      const Index rows = 19, k = 37;
      std::mt19937 rng(3);
      Tensor<float> w({rows, k}), x({k, lanes}), bias({rows}), y({rows, lanes});
      fill(w, rng);
      fill(x, rng);
      fill(bias, rng);
      lane_matmul(w.data(), k, rows, k, bias.data(), x.data(), y.data(), lanes);
      for (Index r = 0; r < rows; ++r) {
        for (Index t = 0; t < lanes; ++t) {
          double sum = bias(r);
          for (Index i = 0; i < k; ++i) sum += static_cast<double>(w(r, i)) * x(i, t);
          REQUIRE(std::abs(sum - static_cast<double>(y(r, t))) < 1e-4);
        }
      }

      Tensor<float> normed({k, lanes}), weight({k});
      fill(weight, rng);
      lane_rms_norm(x.data(), weight.data(), k, 1e-5f, normed.data(), lanes);
      for (Index t = 0; t < lanes; ++t) {
        double sum = 0.0;
        for (Index i = 0; i < k; ++i) sum += static_cast<double>(x(i, t)) * x(i, t);
        const double scale = 1.0 / std::sqrt(sum / static_cast<double>(k) + 1e-5);
        for (Index i = 0; i < k; ++i) {
          REQUIRE(std::abs(static_cast<double>(x(i, t)) * scale * weight(i) -
                           static_cast<double>(normed(i, t))) < 1e-5);
        }
      }

      Tensor<float> gate = x.clone();
      lane_swiglu(gate.data(), normed.data(), k * lanes);
      for (Index i = 0; i < k * lanes; ++i) {
        const double g = x.data()[i];
        const double expected = g / (1.0 + std::exp(-g)) * static_cast<double>(normed.data()[i]);
        REQUIRE(std::abs(expected - static_cast<double>(gate.data()[i])) < 1e-5);
      }

      Tensor<float> gate_up({2 * rows, lanes}), clamped({rows, lanes});
      fill(gate_up, rng, 4.0f);
      lane_clamped_swiglu(gate_up.data(), rows, 1.702f, 3.5f, clamped.data(), lanes);
      for (Index f = 0; f < rows; ++f) {
        for (Index t = 0; t < lanes; ++t) {
          const double g = std::min(static_cast<double>(gate_up(2 * f, t)), 3.5);
          const double u = std::clamp(static_cast<double>(gate_up(2 * f + 1, t)), -3.5, 3.5);
          const double value = (u + 1.0) * g / (1.0 + std::exp(-static_cast<double>(1.702f) * g));
          REQUIRE(std::abs(value - static_cast<double>(clamped(f, t))) < 2e-5);
        }
      }
    }
  }
}

}  // namespace kvscope::test::lane_kernels_test
