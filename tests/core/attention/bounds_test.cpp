// QuoKA's theorems as pure functions: published vectors, counterexamples, and properties on
// random data.
#include <numeric>

#include "core/attention/theorem_b1.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::bounds_test {

/// A row from vectors, by the definitions: unit query, scale 1.
TheoremB1Row row_of(const std::vector<double>& q, const std::vector<std::vector<double>>& keys,
                    Index star) {
  const auto norm = [](const std::vector<double>& x) {
    return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
  };
  std::vector<double> scores;
  double largest = 0.0;
  for (const auto& k : keys) {
    scores.push_back(std::inner_product(q.begin(), q.end(), k.begin(), 0.0));
    largest = std::max(largest, norm(k));
  }
  return theorem_b1_row(scores, star, norm(q), norm(keys[star]), largest, 1.0);
}

TEST_CASE("theorem B.1 as printed: both published counterexamples break it, the repairs hold") {
  SECTION("unequal norms") {
    const TheoremB1Row row = row_of({1, 0}, {{-1, 0}, {-0.001, 0}}, 1);
    REQUIRE(row.n == 1);
    REQUIRE(row.weight == Approx(0.7309).margin(1e-4));
    REQUIRE(row.cos == Approx(-1.0));
    REQUIRE(row.printed == Approx(-0.690).margin(1e-3));
    REQUIRE(row.printed > row.cos);
    REQUIRE(row.jensen <= row.cos + row.slack);
    REQUIRE(row.worst <= row.cos + row.slack);
  }
  SECTION("a squared norm where a norm belongs") {
    const TheoremB1Row row = row_of({1, 0}, {{0.1, 0}, {-0.1, 0}}, 0);
    REQUIRE(row.printed == Approx(4.25).margin(0.01));
    REQUIRE(row.cos == Approx(1.0));
    REQUIRE(row.repaired <= 1.0);
    REQUIRE(row.jensen <= row.cos + row.slack);
    REQUIRE(row.worst <= row.cos + row.slack);
  }
}

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

TEST_CASE("theorem B.1: random rows never break Jensen, worst case or the exact identity") {
  Random random(11);
  const double longest = GENERATE(0.4, 5.0, 40.0);
  Index printed_violations = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const Index n = 1 + random.below(12);
    std::vector<std::vector<double>> keys;
    for (Index i = 0; i <= n; ++i) {
      std::vector<double> key = {random.normal(), random.normal(), random.normal()};
      const double length = longest * random.uniform();
      const double norm = std::sqrt(std::inner_product(key.begin(), key.end(), key.begin(), 0.0));
      for (double& x : key) x *= length / norm;
      keys.push_back(key);
    }
    std::vector<double> q = {random.normal(), random.normal(), random.normal()};
    const double norm = std::sqrt(std::inner_product(q.begin(), q.end(), q.begin(), 0.0));
    for (double& x : q) x /= norm;
    const Index star = random.below(n + 1);
    const TheoremB1Row row = row_of(q, keys, star);
    REQUIRE(row.jensen <= row.cos + row.slack + 1e-12);
    REQUIRE(row.worst <= row.cos + row.slack + 1e-12);
    if (row.cos >= 0.0) REQUIRE(row.repaired <= row.cos + 1e-12);
    printed_violations += row.printed > row.cos + 1e-9;
    // s* = log(w / (1 - w)) + LSE of the others
    double others = 0.0;
    double s_star = 0.0;
    for (Index i = 0; i <= n; ++i) {
      const auto& key = keys[i];
      const double s = std::inner_product(q.begin(), q.end(), key.begin(), 0.0);
      if (i == star) {
        s_star = s;
      } else {
        others += std::exp(s);
      }
    }
    REQUIRE(row.log_odds + std::log(others) == Approx(s_star).margin(1e-10));
  }
  if (longest < 1.0) REQUIRE(printed_violations > 0);  // short keys are where the print fails
}

TEST_CASE("theorem B.1: equal norms of at least one half keep the printed form safe") {
  Random random(12);
  for (int trial = 0; trial < 4000; ++trial) {
    const double length = 0.5 + 4.0 * random.uniform();
    std::vector<std::vector<double>> keys;
    for (Index i = 0; i < 6; ++i) {
      const double angle = 6.28 * random.uniform();
      keys.push_back({length * std::cos(angle), length * std::sin(angle)});
    }
    const TheoremB1Row row = row_of({1, 0}, keys, random.below(6));
    REQUIRE(row.printed <= row.cos + 1e-9);
    REQUIRE(row.repaired <= row.cos + 1e-9);
  }
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
