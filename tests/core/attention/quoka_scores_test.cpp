// QuoKA's mean query. The golden vector of the specification is tested with the selector.
#include "core/attention/quoka_scores.hpp"
#include "tests/support/test.hpp"

namespace kvscope::quoka_scores_test {

Tensor<float> rows_of(const std::vector<std::vector<float>>& rows) {
  Tensor<float> x({static_cast<Index>(rows.size()), static_cast<Index>(rows[0].size())});
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy(rows[i].begin(), rows[i].end(), x.view().row(static_cast<Index>(i)).begin());
  return x;
}

void require_close(std::span<const double> found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    REQUIRE(found[i] == Approx(expected[i]).margin(1.5e-6));
}

TEST_CASE("quoka: the mean of raw queries weighs long ones, the mean of unit ones does not") {
  const Tensor<float> q = rows_of({{10, 0}, {0, 1}, {0, 1}});
  const auto raw = quoka_mean_query(q.view(), QuokaMean::raw, 1e-12);
  const auto unit = quoka_mean_query(q.view(), QuokaMean::unit, 1e-12);
  require_close(raw, {10.0 / 3.0, 2.0 / 3.0});
  require_close(unit, {1.0 / 3.0, 2.0 / 3.0});
  REQUIRE(quoka_pick(quoka_cosines(q.view(), raw, 1e-12), 1) == std::vector<Index>{1});
  REQUIRE(quoka_pick(quoka_cosines(q.view(), unit, 1e-12), 1) == std::vector<Index>{0});
}

}  // namespace kvscope::quoka_scores_test
