// Bootstrap intervals against loops: the drawn means, sorted, and both percentiles.

#include "analysis/sweep/sweep_rows.hpp"
#include "core/base/rng.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::sweep_rows_test {

/// The value below which a share of sorted values lies, between neighbours in proportion.
double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(at));
  const double part = at - std::floor(at);
  if (below + 1 == sorted.size()) return sorted[below];
  return (1.0 - part) * sorted[below] + part * sorted[below + 1];
}

TEST_CASE("a bootstrap interval holds 95 % of the means of what was drawn") {
  constexpr Index kResamples = 300;
  const std::vector<double> values = {0.1, 0.9, 0.35, 0.2, 0.77, 0.64, 0.05, 0.5, 0.41};
  const CounterRng rng({7, 3});
  std::vector<double> means;
  std::uint64_t counter = 0;
  for (Index i = 0; i < kResamples; ++i) {
    double sum = 0.0;
    for (std::size_t k = 0; k < values.size(); ++k) {
      const double place = rng.uniform(counter++) * static_cast<double>(values.size());
      sum += values[place];
    }
    means.push_back(sum / static_cast<double>(values.size()));
  }
  std::ranges::sort(means);
  const Interval interval = bootstrap_mean(values, kResamples, {7, 3});
  CHECK(interval.low == Approx(percentile(means, 0.025)));
  CHECK(interval.high == Approx(percentile(means, 0.975)));
  const auto n_inside = std::ranges::count_if(
      means, [&](double mean) { return mean >= interval.low && mean <= interval.high; });
  CHECK(std::abs(static_cast<double>(n_inside) - 0.95 * kResamples) <= 2.0);
}

TEST_CASE("values that are missing are no part of a bootstrap interval") {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const Interval all = bootstrap_mean(std::vector<double>{1.0, 2.0, 4.0}, 50, {1});
  const Interval some = bootstrap_mean(std::vector<double>{kNone, 1.0, 2.0, kNone, 4.0}, 50, {1});
  CHECK(some.low == all.low);
  CHECK(some.high == all.high);
  CHECK(std::isnan(bootstrap_mean({}, 10, {1}).low));
  CHECK(std::isnan(bootstrap_mean(std::vector<double>{1.0}, 0, {1}).high));
}

}  // namespace kvscope::test::sweep_rows_test
