// The soft cap of scores beside tanh of the standard library, on every instruction set.
#include <cstdint>

#include "core/tensor/score_rule.hpp"
#include "core/tensor/soft_cap_kernel.hpp"
#include "support/only_target.hpp"
#include "tests/support/test.hpp"

namespace kvscope::soft_cap_test {

TEST_CASE("a soft cap is cap tanh(x / cap), from tiny scores to huge ones") {
  std::vector<double> scores = {0.0, -0.0, 1e-30, 1e30, -1e30, 3e38};
  for (double x = 1e-6; x < 1e4; x *= 1.07) scores.insert(scores.end(), {x, -x});
  for (const std::int64_t target : test::testable_targets()) {
    DYNAMIC_SECTION(hwy::TargetName(target)) {
      const test::OnlyTarget only(target);
      for (const double cap : {0.5, 50.0}) {
        for (const std::size_t n : {std::size_t{1}, std::size_t{7}, scores.size()}) {
          std::vector<double> wide(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(n));
          std::vector<float> narrow(wide.begin(), wide.end());
          soft_cap(wide, cap);
          soft_cap(narrow, static_cast<float>(cap));
          for (std::size_t i = 0; i < n; ++i) {
            INFO("score " << scores[i] << ", cap " << cap);
            const double expected = ScoreRule{.cap = cap}.of(scores[i]);
            CHECK(std::abs(wide[i] - expected) <= 1e-14 * std::abs(expected));
            CHECK(std::abs(static_cast<double>(narrow[i]) - expected) <=
                  1e-6 * std::abs(expected) + 1e-38);
          }
        }
      }
    }
  }
}

}  // namespace kvscope::soft_cap_test
