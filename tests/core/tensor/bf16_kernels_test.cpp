// Products in bf16: every kernel that this machine has against loops in double, and the same bits
// for any division.
#include <random>

#include "core/tensor/bf16_kernels.hpp"
#include "core/tensor/dtype.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::bf16_kernels_test {

std::vector<std::uint16_t> random_bf16(std::size_t n, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& x : values) x = normal(rng);
  std::vector<std::uint16_t> out(n);
  from_float(values.data(), DType::bf16, out.data(), n);
  return out;
}

float wide(std::uint16_t half) {
  float value = 0.0f;
  to_float(DType::bf16, &half, &value, 1);
  return value;
}

TEST_CASE("bf16 products equal loops in double, with the same bits for any rows and lanes") {
  std::mt19937 rng(9);
  for (const Matmul matmul : {Matmul::bf16_avx512, Matmul::bf16_amx}) {
    if (!is_available(matmul)) continue;
    DYNAMIC_SECTION(enum_name(matmul)) {
      for (const Index n_rows : {1, 16, 37, 64}) {
        for (const Index k : {1, 8, 31, 32, 33, 96, 300, 544}) {
          INFO(n_rows << " rows, k " << k);
          const Index ldw = k + 3;
          const Index lanes = 32;
          const auto w = random_bf16(static_cast<std::size_t>(n_rows * ldw), rng);
          Tensor<float> x({k, lanes}), bias({n_rows}), y({n_rows, lanes}), part({n_rows, lanes}),
              narrow({n_rows, Index{16}});
          std::normal_distribution<float> normal;
          for (float& value : x.flat()) value = normal(rng);
          for (float& value : bias.flat()) value = normal(rng);
          std::vector<std::uint16_t> pairs(static_cast<std::size_t>(bf16_pairs_size(k, lanes)));
          bf16_pairs_from_lanes(x.data(), k, lanes, pairs.data());
          bf16_matmul(matmul, w.data(), ldw, n_rows, k, bias.data(),
                      {pairs.data(), 0, y.data(), 0, 1, lanes});
          for (Index r = 0; r < n_rows; ++r) {
            for (Index t = 0; t < lanes; ++t) {
              double sum = bias(r), size = std::abs(sum);
              for (Index i = 0; i < k; ++i) {
                std::uint16_t half = 0;
                from_float(&x(i, t), DType::bf16, &half, 1);
                const double term = static_cast<double>(wide(w[r * ldw + i])) * wide(half);
                sum += term;
                size += std::abs(term);
              }
              REQUIRE(std::abs(sum - static_cast<double>(y(r, t))) < 1e-6 * size + 1e-6);
            }
          }
          // Three blocks at once.
          Tensor<float> thrice({Index{3}, n_rows, lanes});
          bf16_matmul(matmul, w.data(), ldw, n_rows, k, bias.data(),
                      {pairs.data(), 0, thrice.data(), n_rows * lanes, 3, lanes});
          for (Index b = 0; b < 3; ++b)
            REQUIRE(std::equal(y.flat().begin(), y.flat().end(), thrice.sub(b).data()));
          // Row by row, and the last 16 lanes as a block of their own.
          for (Index r = 0; r < n_rows; ++r) {
            bf16_matmul(matmul, w.data() + r * ldw, ldw, 1, k, bias.data() + r,
                        {pairs.data(), 0, part.data() + r * lanes, 0, 1, lanes});
          }
          REQUIRE(std::equal(y.flat().begin(), y.flat().end(), part.flat().begin()));
          Tensor<float> last({k, Index{16}});
          for (Index i = 0; i < k; ++i) std::copy_n(&x(i, Index{16}), 16, &last(i, Index{0}));
          std::vector<std::uint16_t> few(static_cast<std::size_t>(bf16_pairs_size(k, 16)));
          bf16_pairs_from_lanes(last.data(), k, 16, few.data());
          bf16_matmul(matmul, w.data(), ldw, n_rows, k, bias.data(),
                      {few.data(), 0, narrow.data(), 0, 1, 16});
          for (Index r = 0; r < n_rows; ++r)
            REQUIRE(std::equal(&narrow(r, Index{0}), &narrow(r, Index{0}) + 16, &y(r, Index{16})));
        }
      }
    }
  }
}

}  // namespace kvscope::test::bf16_kernels_test
