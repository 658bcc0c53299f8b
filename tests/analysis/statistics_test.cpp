// Means, quantiles, correlations and histograms on numbers that can be checked by hand.
#include "analysis/statistics.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

namespace kvscope {
namespace {

using Catch::Approx;
using Vector = std::vector<double>;
const double kNan = std::nan("");

TEST_CASE("means and quantiles leave NaN out", "[statistics]") {
  REQUIRE(mean(Vector{1, kNan, 3}) == 2.0);
  REQUIRE(std::isnan(mean(Vector{kNan})));
  REQUIRE(std::isnan(mean(Vector{})));
  REQUIRE(quantile(Vector{4, 1, kNan, 3, 2}, 0.0) == 1.0);
  REQUIRE(quantile(Vector{4, 1, kNan, 3, 2}, 0.5) == 2.5);
  REQUIRE(quantile(Vector{4, 1, 3, 2}, 1.0) == 4.0);
  REQUIRE(std::isnan(quantile(Vector{}, 0.5)));
}

TEST_CASE("Pearson, Spearman and the partial correlation", "[statistics]") {
  const Vector x = {1, 2, 3, 4};
  REQUIRE(pearson(x, Vector{2, 4, 6, 8}) == Approx(1.0));
  REQUIRE(pearson(x, Vector{1, 3, 2, 5}) == Approx(0.8315218406));
  REQUIRE(spearman(x, Vector{1, 8, 27, 64}) == Approx(1.0));
  REQUIRE(spearman(Vector{1, 2, 2, 3}, Vector{4, 5, 6, 7}) == Approx(0.9486832981));
  REQUIRE(pearson(Vector{1, kNan, 3, 4}, Vector{1, 100, 3, 4}) == Approx(1.0));
  REQUIRE(std::isnan(pearson(x, Vector{5, 5, 5, 5})));
  REQUIRE(std::isnan(pearson(Vector{1}, Vector{1})));
  // x and y follow z up to residuals that are equal: what is left correlates perfectly
  const Vector z = {1, 2, 3, 4, 5, 6};
  const Vector residual = {0.3, -0.2, 0.1, 0.1, -0.2, 0.3};
  Vector a, b;
  for (std::size_t i = 0; i < z.size(); ++i) {
    a.push_back(2 * z[i] + residual[i]);
    b.push_back(-z[i] + residual[i]);
  }
  REQUIRE(pearson(a, b) < 0.0);
  REQUIRE(partial_correlation(a, b, z) == Approx(1.0).margin(0.02));
}

TEST_CASE("histograms count every value inside once", "[statistics]") {
  REQUIRE(histogram(Vector{0, 0.24, 0.25, 1, 1.5, -1, kNan}, 0, 1, 4) ==
          std::vector<std::int64_t>{2, 1, 0, 1});
  REQUIRE(histogram(Vector{1, 2}, 3, 3, 2) == std::vector<std::int64_t>{0, 0});
  REQUIRE(histogram(Vector{1}, 0, 2, 0).empty());
}

TEST_CASE("evenly spaced positions are distinct, ordered, and end with the last", "[statistics]") {
  REQUIRE(evenly_spaced(0, 5, 10) == std::vector<Index>{0, 1, 2, 3, 4});
  REQUIRE(evenly_spaced(3, 4, 9) == std::vector<Index>{3});
  REQUIRE(evenly_spaced(0, 100, 1) == std::vector<Index>{99});
  REQUIRE(evenly_spaced(5, 5, 4).empty());
  REQUIRE(evenly_spaced(7, 2, 4).empty());
  for (Index n : {2, 3, 7, 63, 99}) {
    const auto list = evenly_spaced(10, 110, n);
    REQUIRE(static_cast<Index>(list.size()) == n);
    REQUIRE(list.front() == 10);
    REQUIRE(list.back() == 109);
    for (std::size_t i = 1; i < list.size(); ++i) REQUIRE(list[i] > list[i - 1]);
  }
}

TEST_CASE("numbers that JSON lacks are null", "[statistics]") {
  REQUIRE(json_number(kNan).is_null());
  REQUIRE(json_number(INFINITY).is_null());
  REQUIRE(json_number(0.5) == 0.5);
}

}  // namespace
}  // namespace kvscope
