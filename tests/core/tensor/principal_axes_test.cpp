// Principal axes against a covariance by three loops, on planted directions, and at the edges.
#include "core/tensor/principal_axes.hpp"

#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::principal_axes_test {

using Rows = TensorView<const float>;

Tensor<float> random_rows(Index n, Index d, std::uint64_t seed) {
  test::Random random(seed);
  Tensor<float> rows({n, d});
  for (float& x : rows.flat()) x = static_cast<float>(random.normal());
  for (Index i = 0; i < n; ++i) {
    for (Index c = 0; c < d; ++c) rows(i, c) = rows(i, c) * static_cast<float>(c + 1) + 5.0f;
  }
  return rows;
}

double naive_covariance(Rows rows, Index a, Index b) {
  double mean_a = 0.0, mean_b = 0.0, sum = 0.0;
  const auto n = static_cast<double>(rows.dim(0));
  for (Index i = 0; i < rows.dim(0); ++i) {
    mean_a += static_cast<double>(rows(i, a)) / n;
    mean_b += static_cast<double>(rows(i, b)) / n;
  }
  for (Index i = 0; i < rows.dim(0); ++i)
    sum += (static_cast<double>(rows(i, a)) - mean_a) * (static_cast<double>(rows(i, b)) - mean_b);
  return sum / n;
}

TEST_CASE("principal axes are the covariance's eigenvectors, orthonormal, falling, signed") {
  const Index n = GENERATE(3, 40, 700);  // fewer rows than channels; more than one block
  const Index d = 7;
  const Tensor<float> rows = random_rows(n, d, 4);
  const Rows sets[] = {rows.view()};
  const PrincipalAxes axes = principal_axes(sets);
  double trace = 0.0, total = 0.0;
  for (Index r = 0; r < d; ++r) {
    const double variance = axes.variance[r];
    total += variance;
    trace += naive_covariance(rows.view(), r, r);
    if (r > 0) CHECK(variance <= axes.variance[r - 1]);
    Index largest = 0;
    for (Index a = 0; a < d; ++a) {
      double product = 0.0, dot = 0.0;
      for (Index b = 0; b < d; ++b) {
        product += naive_covariance(rows.view(), a, b) * axes.directions(r, b);
        dot += axes.directions(r, b) * axes.directions(a, b);
      }
      CHECK(product == Approx(variance * axes.directions(r, a)).margin(1e-8));
      CHECK(dot == Approx(a == r ? 1.0 : 0.0).margin(1e-10));
      if (std::abs(axes.directions(r, a)) > std::abs(axes.directions(r, largest))) largest = a;
    }
    CHECK(axes.directions(r, largest) > 0.0);
  }
  CHECK(total == Approx(trace));
  double sum = 0.0;
  for (double share : axes.explained()) sum += share;
  CHECK(sum == Approx(1.0));
}

TEST_CASE("planted axes come back with their variances") {
  // +-3 along (1, 1, 0)/sqrt 2, +-2 along the third channel, +-1 along (1, -1, 0)/sqrt 2
  const double h = std::sqrt(0.5);
  const double plan[3][3] = {{h, h, 0}, {0, 0, 1}, {h, -h, 0}};
  Tensor<float> rows({8, 3});
  for (Index i = 0; i < 8; ++i) {
    for (Index r = 0; r < 3; ++r) {
      const double length = ((i >> r) & 1 ? 1.0 : -1.0) * static_cast<double>(3 - r);
      for (Index c = 0; c < 3; ++c) rows(i, c) += static_cast<float>(length * plan[r][c]);
    }
    rows(i, 0) += 10.0f;
  }
  const Rows sets[] = {rows.view()};
  const PrincipalAxes axes = principal_axes(sets);
  CHECK(axes.center[0] == Approx(10.0));
  CHECK(axes.center[2] == Approx(0.0).margin(1e-6));
  for (Index r = 0; r < 3; ++r) {
    CHECK(axes.variance[r] == Approx((3 - r) * (3 - r)).epsilon(1e-5));
    // elements of equal magnitude: the first one is positive
    for (Index c = 0; c < 3; ++c) CHECK(axes.directions(r, c) == Approx(plan[r][c]).margin(1e-5));
  }
  float at[2];
  axes.project(rows.view().row(3), at);  // bits 0 and 1: + along the first two axes
  CHECK(at[0] == Approx(3.0));
  CHECK(at[1] == Approx(2.0));
}

TEST_CASE("equal rows have no variance to explain; wrong rows are refused") {
  Tensor<float> rows({1000, 4});
  for (float& x : rows.flat()) x = 0.1f;
  const Rows equal[] = {rows.view()};
  const PrincipalAxes axes = principal_axes(equal);
  for (double variance : axes.variance) CHECK(variance == 0.0);
  for (double share : axes.explained()) CHECK(std::isnan(share));
  const Rows one[] = {rows.view().range(0, 0, 1)};
  CHECK(principal_axes(one).variance[0] == 0.0);
  const Rows none[] = {rows.view().range(0, 0, 0)};
  CHECK_THROWS_AS(principal_axes(none), ShapeError);
  const Tensor<float> wider({2, 5});
  const Rows mixed[] = {rows.view(), wider.view()};
  CHECK_THROWS_AS(principal_axes(mixed), ShapeError);
}

}  // namespace kvscope::principal_axes_test
