// The kernels for few tokens have the bits of the lane kernels, on every instruction set.
#include <hwy/targets.h>
#include <random>

#include "core/tensor/dtype.hpp"
#include "core/tensor/lane_kernels.hpp"
#include "core/tensor/row_kernels.hpp"
#include "support/only_target.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::row_kernels_test {

TEST_CASE("products of few tokens have the bits of the lane kernel") {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  const Index lanes = kNarrowLanes;
  for (const std::int64_t target : test::testable_targets()) {
    DYNAMIC_SECTION(hwy::TargetName(target)) {
      const test::OnlyTarget only(target);
      for (const Index n_rows : {16, 19, 32, 53, 64}) {
        for (const Index k : {8, 24, 104}) {
          const Index ldw = k + 16;
          Tensor<float> w({n_rows, ldw}), x({k, lanes}), bias({n_rows}), wide({n_rows, lanes}),
              few({n_rows, lanes});
          for (auto* tensor : {&w, &x, &bias}) {
            for (float& value : tensor->flat()) value = normal(rng);
          }
          std::vector<std::uint16_t> halves(static_cast<std::size_t>(w.count()));
          from_float(w.data(), DType::bf16, halves.data(), halves.size());
          to_float(DType::bf16, halves.data(), w.data(), halves.size());
          for (Index n_tok = 1; n_tok <= kMaxRowTokens; ++n_tok) {
            INFO(n_rows << " rows, k " << k << ", " << n_tok << " tokens");
            REQUIRE(row_matmul_takes(n_rows, k, n_tok));
            Tensor<float> rows({n_tok, k});
            rows_from_lanes(x.data(), k, lanes, n_tok, rows.data(), k);
            const float* b = n_tok % 2 == 0 ? bias.data() : nullptr;
            lane_matmul(w.data(), ldw, n_rows, k, b, x.data(), wide.data(), lanes);
            const auto check = [&] {
              for (Index r = 0; r < n_rows; ++r) {
                for (Index t = 0; t < lanes; ++t)
                  REQUIRE(few(r, t) == (t < n_tok ? wide(r, t) : 0.0f));
              }
            };
            row_matmul(w.data(), ldw, n_rows, k, b, rows.data(), n_tok, few.data(), lanes);
            check();
            std::fill_n(few.data(), few.count(), 7.0f);
            row_matmul(halves.data(), ldw, n_rows, k, b, rows.data(), n_tok, few.data(), lanes);
            check();
          }
        }
      }
      CHECK_FALSE(row_matmul_takes(64, 30, 1));
      CHECK_FALSE(row_matmul_takes(64, 32, kMaxRowTokens + 1));
    }
  }
}

}  // namespace kvscope::test::row_kernels_test
