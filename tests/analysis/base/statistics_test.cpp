// Means, quantiles and correlations on numbers that can be checked by hand.
#include "analysis/base/statistics.hpp"

#include "tests/support/test.hpp"

namespace kvscope::statistics_test {

using Vector = std::vector<double>;
const double kNan = std::nan("");

TEST_CASE("means and quantiles leave NaN out") {
  REQUIRE(mean(Vector{1, kNan, 3}) == 2.0);
  REQUIRE(std::isnan(mean(Vector{kNan})));
  REQUIRE(std::isnan(mean(Vector{})));
  REQUIRE(quantile(Vector{4, 1, kNan, 3, 2}, 0.0) == 1.0);
  REQUIRE(quantile(Vector{4, 1, kNan, 3, 2}, 0.5) == 2.5);
  REQUIRE(quantile(Vector{4, 1, 3, 2}, 1.0) == 4.0);
  REQUIRE(std::isnan(quantile(Vector{}, 0.5)));
}

TEST_CASE("Pearson, Spearman and the partial correlation") {
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

TEST_CASE("Spearman with ties shares mean ranks") {
  REQUIRE(ranks_of(Vector{30, 10, 20, 10}) == Vector{4, 1.5, 3, 1.5});
  REQUIRE(ranks_of(Vector{5, 5, 5}) == Vector{2, 2, 2});
  REQUIRE(ranks_of(Vector{}).empty());
  // deviations of the ranks: -1 -1 .5 1.5 and -1.5 0 0 1.5; 3.75 / sqrt(4.5 * 4.5)
  REQUIRE(spearman(Vector{1, 1, 2, 3}, Vector{1, 2, 2, 3}) == Approx(3.75 / 4.5));
  REQUIRE(std::isnan(spearman(Vector{7, 7, 7}, Vector{1, 2, 3})));
}

TEST_CASE("what is constant up to rounding correlates with nothing") {
  Vector x, tenth, nearly;
  for (int i = 0; i < 1000; ++i) {
    x.push_back(i);
    tenth.push_back(0.1);  // its sum is not exactly 100
    nearly.push_back(1.0 + (i % 2) * 2.5e-16);
  }
  REQUIRE(std::isnan(pearson(x, tenth)));
  REQUIRE(std::isnan(pearson(x, nearly)));
  REQUIRE(std::isnan(partial_correlation(x, tenth, nearly)));
  // tiny is not constant
  const Vector tiny = {1e-200, 2e-200, 4e-200};
  const Vector three = {1, 2, 4};
  REQUIRE((std::isnan(pearson(tiny, three)) || pearson(tiny, three) == Approx(1.0)));
  const Vector small = {1e-90, 2e-90, 4e-90};
  REQUIRE(pearson(small, three) == Approx(1.0));
}

TEST_CASE("partial correlations: against residuals, by ranks, and where z explains all") {
  Vector x, y, z;
  std::uint64_t state = 7;
  const auto noise = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<double>(state >> 40) / (1 << 24) - 0.5;
  };
  for (int i = 0; i < 200; ++i) {
    z.push_back(i);
    const double shared = noise();
    x.push_back(0.01 * i + shared + 0.3 * noise());
    y.push_back(-0.03 * i + shared + 0.3 * noise());
  }
  // residuals of the regressions on z, by the textbook
  const auto residuals = [&](const Vector& v) {
    double mean_v = 0, mean_z = 0, vz = 0, zz = 0;
    for (int i = 0; i < 200; ++i) {
      mean_v += v[i] / 200;
      mean_z += z[i] / 200;
    }
    for (std::size_t i = 0; i < 200; ++i) {
      vz += (v[i] - mean_v) * (z[i] - mean_z);
      zz += (z[i] - mean_z) * (z[i] - mean_z);
    }
    Vector out;
    for (std::size_t i = 0; i < 200; ++i) out.push_back(v[i] - mean_v - vz / zz * (z[i] - mean_z));
    return out;
  };
  REQUIRE(partial_correlation(x, y, z) == Approx(pearson(residuals(x), residuals(y))));
  REQUIRE(pearson(x, y) < -0.2);
  REQUIRE(partial_correlation(x, y, z) > 0.7);
  REQUIRE(partial_spearman(x, y, z) ==
          Approx(partial_correlation(ranks_of(x), ranks_of(y), ranks_of(z))));
  // monotone changes of any of the three leave the ranks' partial correlation alone
  Vector log_z, cube;
  for (double v : z) log_z.push_back(std::log1p(v));
  for (double v : x) cube.push_back(v * v * v);
  REQUIRE(partial_spearman(cube, y, log_z) == Approx(partial_spearman(x, y, z)));
  // entries with NaN are left out of all three
  Vector holes = x;
  Vector kept_x(x.begin() + 1, x.end()), kept_y(y.begin() + 1, y.end()),
      kept_z(z.begin() + 1, z.end());
  holes[0] = kNan;
  REQUIRE(partial_correlation(holes, y, z) == partial_correlation(kept_x, kept_y, kept_z));
  REQUIRE(partial_spearman(holes, y, z) == partial_spearman(kept_x, kept_y, kept_z));
  // nothing is left of x where it is a function of z
  REQUIRE(std::isnan(partial_correlation(z, y, z)));
  REQUIRE(std::isnan(partial_spearman(log_z, y, z)));
}

TEST_CASE("evenly spaced positions are distinct, ordered, and end with the last") {
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

}  // namespace kvscope::statistics_test
