// Intervals and paired tests against numbers that can be checked by hand, and by enumeration.
#include "analysis/simulate/intervals.hpp"

#include "tests/support/test.hpp"

namespace kvscope::test::intervals_test {

using Vector = std::vector<double>;

double binomial(int n, int k, double p) {
  double x = 1.0;
  for (int i = 0; i < k; ++i) x *= static_cast<double>(n - i) / static_cast<double>(i + 1);
  return x * std::pow(p, k) * std::pow(1.0 - p, n - k);
}

TEST_CASE("Wilson's interval: published values, ends, coverage") {
  const Interval all = wilson_interval(5, 5);
  CHECK(all.low == Approx(5.0 / (5.0 + 1.959964 * 1.959964)).epsilon(1e-6));
  CHECK(all.high == 1.0);
  CHECK(wilson_interval(0, 5).low == 0.0);
  CHECK(wilson_interval(0, 5).high == Approx(1.0 - all.low).epsilon(1e-12));
  CHECK(wilson_interval(8, 10).low == Approx(0.4902).margin(5e-5));  // Newcombe 1998's method 3
  CHECK(wilson_interval(8, 10).high == Approx(0.9433).margin(5e-5));
  CHECK(std::isnan(wilson_interval(0, 0).low));
  for (const double p : {0.1, 0.5, 0.8, 0.95}) {
    for (const int n : {10, 20, 50}) {
      double covered = 0.0;
      for (int k = 0; k <= n; ++k) {
        const Interval interval = wilson_interval(k, n);
        if (interval.low <= p && p <= interval.high) covered += binomial(n, k, p);
      }
      INFO("p " << p << ", n " << n << ": covers " << covered);
      CHECK(covered > 0.88);
    }
  }
}

TEST_CASE("McNemar's exact test equals the enumeration of all sign flips") {
  CHECK(mcnemar_exact(0, 0) == 1.0);
  CHECK(mcnemar_exact(0, 5) == Approx(0.0625));
  CHECK(mcnemar_exact(1, 9) == Approx(22.0 / 1024.0));
  for (int b = 0; b <= 6; ++b) {
    for (int c = 0; b + c <= 12; ++c) {
      const int n = b + c;
      int as_far = 0;
      for (int flips = 0; flips < (1 << n); ++flips) {
        const int wins = __builtin_popcount(static_cast<unsigned>(flips));
        as_far += std::abs(2 * wins - n) >= std::abs(b - c) ? 1 : 0;
      }
      CHECK(mcnemar_exact(b, c) == Approx(static_cast<double>(as_far) / (1 << n)));
    }
  }
  CHECK(mcnemar_exact(500'000, 500'000) == Approx(1.0));
  CHECK(mcnemar_exact(400'000, 500'000) < 1e-6);
}

TEST_CASE("paired tests count wins, and their intervals are those of differences") {
  const Vector a = {1, 1, 1, 1, 1, 1, 0, 1, 1, 1};
  const Vector b = {0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
  const PairedTest test = paired_test(a, b, {1});
  CHECK(test.n == 10);
  CHECK(test.only_first == 6);
  CHECK(test.only_second == 1);
  CHECK(test.difference == Approx(0.5));
  CHECK(test.p == Approx(16.0 / 128.0));
  CHECK(test.interval.low < 0.5);
  CHECK(test.interval.high > 0.5);
  CHECK(paired_test(b, a, {1}).p == test.p);
  const PairedTest same = paired_test(a, a, {1});
  CHECK(same.p == 1.0);
  CHECK(same.interval.low == 0.0);
  CHECK(same.interval.high == 0.0);
  CHECK(paired_test(a, b, {1}).interval.low == test.interval.low);  // the draws are named
  CHECK(std::isnan(paired_test({}, {}, {1}).difference));
}

TEST_CASE("shares of several answers get a bootstrap, whole answers Wilson's interval") {
  CHECK(score_interval(Vector{1, 1, 0, 1}, {7}).low == wilson_interval(3, 4).low);
  const Interval parts = score_interval(Vector{0.25, 0.5, 0.75, 0.5}, {7});
  CHECK(parts.low >= 0.25);
  CHECK(parts.low < 0.5);
  CHECK(parts.high > 0.5);
  CHECK(parts.high <= 0.75);
  CHECK(std::isnan(score_interval(Vector{}, {7}).low));
}

TEST_CASE("intervals over prompts of several texts draw texts first") {
  std::vector<double> scores(20, 0.0);
  std::vector<std::size_t> text(20);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    text[i] = i % 2;
    scores[i] = text[i] == 0 ? 1.0 : 0.0;  // one text is all right, the other all wrong
  }
  const Interval prompts = score_interval(scores, {1});
  CHECK(prompts.low > 0.25);
  CHECK(prompts.high < 0.75);
  const Interval texts = score_interval(scores, {1}, text);
  CHECK(texts.low == 0.0);
  CHECK(texts.high == 1.0);
  const std::vector<double> zeros(20, 0.0);
  CHECK(paired_test(scores, zeros, {1}, text).interval.low == 0.0);
  CHECK(paired_test(scores, zeros, {1}).interval.low > 0.25);
  // nothing to draw between equal scores: Wilson's, as with one text
  const std::vector<double> ones(20, 1.0);
  CHECK(score_interval(ones, {1}, text).low == wilson_interval(20.0, 20.0).low);
}

TEST_CASE("the bootstrap over texts and their blocks is paired") {
  // three texts that differ much, blocks that differ little: whole texts decide the width
  const std::vector<std::vector<Vector>> none(1);  // one text
  std::vector values(2, none);
  for (int text = 0; text < 3; ++text) {
    Vector one, other;
    for (int block = 0; block < 20; ++block) {
      one.push_back(3.0 * text + 0.01 * block);
      other.push_back(one.back() + 0.5);
    }
    values[0][0].push_back(one);
    values[1][0].push_back(other);
  }
  const auto means = nested_bootstrap(values, 500, {3});
  REQUIRE(means.size() == 2);
  REQUIRE(means[0].size() == 500);
  for (std::size_t i = 0; i < 500; ++i) CHECK(means[1][i] - means[0][i] == Approx(0.5));
  const Interval wide = percentiles95(means[0]);
  CHECK(wide.high - wide.low > 3.0);
  values[0][0].resize(1);
  values.resize(1);
  const Interval narrow = percentiles95(nested_bootstrap(values, 500, {3})[0]);
  CHECK(narrow.high - narrow.low < 0.1);
}

TEST_CASE("texts are drawn above windows and blocks") {
  // [series][text][window][block]; two texts without any spread of their own
  const std::vector<std::vector<std::vector<std::vector<double>>>> values = {
      {{{1, 1, 1}, {1, 1, 1}}, {{5, 5, 5}, {5, 5, 5}}}};
  const auto means = nested_bootstrap(values, 400, {3})[0];
  int n_low = 0, n_high = 0;
  for (const double x : means) {
    CHECK((x == 1.0 || x == 3.0 || x == 5.0));
    n_low += x == 1.0;
    n_high += x == 5.0;
  }
  CHECK(std::abs(n_low - 100) < 40);  // a quarter each, by the law of two draws
  CHECK(std::abs(n_high - 100) < 40);
  CHECK(nested_bootstrap({}, 50, {3}).empty());
}

}  // namespace kvscope::test::intervals_test
