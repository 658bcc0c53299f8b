// QuoKA's theorems as pure functions, at their edges; their rows against loops, random ones and
// the published counterexample: tests/analysis/kinds/theorem_b1_test.cpp.
#include <numeric>

#include "core/attention/theorem_b1.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::bounds_test {

TEST_CASE("theorem B.1: how little each form says for n = 4095, N = 10") {
  // scores built so that k* has the wanted weight among 4095 equal others
  const auto row_with_weight = [](double w) {
    const double n = 4095.0;
    std::vector<double> scores(4096, 0.0);
    scores[7] = std::log(n * w / (1.0 - w));
    return theorem_b1_row(scores, 7, 1.0, 10.0, 10.0, 1.0);
  };
  const TheoremB1Row half = row_with_weight(0.5);
  REQUIRE(half.printed == Approx(-0.9965).margin(1e-4));
  REQUIRE(half.repaired == Approx(-0.931).margin(1e-3));
  REQUIRE((std::log(4095.0) + half.log_odds) / 10.0 - 1.0 == Approx(-0.168).margin(1e-3));
  const TheoremB1Row most = row_with_weight(0.99);
  REQUIRE(most.printed == Approx(-0.977).margin(1e-3));
  REQUIRE(most.repaired == Approx(-0.540).margin(1e-3));
  REQUIRE(most.worst == Approx(0.291).margin(1e-3));
}

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

TEST_CASE("main-text theorem: both bounds hold, the exact one is the tighter") {
  Random random(13);
  const auto unit = [&] {
    std::vector<double> x = {random.normal(), random.normal(), random.normal()};
    const double norm = std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
    for (double& value : x) value /= norm;
    return x;
  };
  const auto dot = [](const auto& a, const auto& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  for (int trial = 0; trial < 20000; ++trial) {
    const auto mean = unit();
    const auto key = unit();
    const auto query = trial % 7 == 0 ? mean : unit();
    const MainTextBound bound = main_text_bound(dot(mean, key), dot(key, query));
    REQUIRE(dot(mean, query) <= bound.exact + bound.slack);
    REQUIRE(bound.exact <= bound.relaxed + bound.slack);
  }
}

}  // namespace kvscope::bounds_test
