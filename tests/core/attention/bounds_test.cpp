// QuoKA's theorems as pure functions, at their edges; their rows against loops, random ones and
// the published counterexample: tests/analysis/kinds/theorem_b1_test.cpp.

#include "core/attention/theorem_b1.hpp"
#include "tests/support/test.hpp"

namespace kvscope::bounds_test {

TEST_CASE("theorem B.1: weights that round to 1 keep their log-odds") {
  const std::vector<double> scores = {500.0, 0.0, -3.0};
  const TheoremB1Row row = theorem_b1_row(scores, 0, 1.0, 500.0, 500.0, 1.0);
  REQUIRE(row.weight == 1.0);
  REQUIRE(row.log_odds == Approx(500.0 - std::log(1.0 + std::exp(-3.0))));
  REQUIRE(std::isfinite(row.jensen));
  REQUIRE(row.jensen <= row.cos + row.slack);
  // and weights that round to 0
  const TheoremB1Row weak = theorem_b1_row(scores, 2, 1.0, 3.0, 500.0, 1.0);
  REQUIRE(std::isfinite(weak.printed));
  REQUIRE(weak.cos == Approx(-1.0));
}

TEST_CASE("theorem B.1: zero vectors and lonely rows say nothing, and say so") {
  const TheoremB1Row zero = theorem_b1_row(std::vector<double>{0.0, 0.0}, 1, 0.0, 0.0, 0.0, 1.0);
  REQUIRE(zero.cos == 0.0);
  REQUIRE(zero.printed == -1.0);
  REQUIRE(zero.jensen == -1.0);
  REQUIRE(zero.worst == -1.0);
  const TheoremB1Row lonely = theorem_b1_row(std::vector<double>{2.0}, 0, 1.0, 2.0, 2.0, 1.0);
  REQUIRE(lonely.n == 0);
  REQUIRE(std::isnan(lonely.cos));
}

}  // namespace kvscope::bounds_test
