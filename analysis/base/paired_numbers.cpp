#include "analysis/base/paired_numbers.hpp"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>

namespace kvscope {

namespace {

/// How far a true difference `d` is from what was seen, in standard errors under it (Tango 1998,
/// equation 2): b pairs for the first, c for the second, of n.
double tango_score(double b, double c, double n, double d) {
  const double middle = -b - c + (2.0 * n - b + c) * d;
  const double q = (std::sqrt(middle * middle + 8.0 * n * c * d * (1.0 - d)) - middle) / (4.0 * n);
  const double variance = n * (2.0 * q + d * (1.0 - d));
  return variance > 0.0 ? (b - c - n * d) / std::sqrt(variance)
                        : std::copysign(INFINITY, b - c - n * d);
}

Interval tango_interval(double b, double c, double n, double z) {
  const auto edge = [&](double inside, double outside) {
    for (int i = 0; i < 60; ++i) {
      const double middle = 0.5 * (inside + outside);
      (std::abs(tango_score(b, c, n, middle)) <= z ? inside : outside) = middle;
    }
    return inside;
  };
  const double seen = (b - c) / n;
  return {edge(seen, -1.0), edge(seen, 1.0)};
}

}  // namespace

bool are_of_right_and_wrong(std::span<const double> differences) {
  return std::ranges::all_of(differences,
                             [](double d) { return d == -1.0 || d == 0.0 || d == 1.0; });
}

double paired_spread(std::span<const double> differences) {
  const auto n = static_cast<double>(differences.size());
  const double centre = mean(differences);
  double squares = 0.0;
  for (const double d : differences) squares += (d - centre) * (d - centre);
  if (squares == 0.0 && are_of_right_and_wrong(differences)) return std::sqrt(1.5 / (n + 2.0));
  return std::sqrt(squares / (n - 1.0));
}

Interval paired_interval(std::span<const double> differences, double confidence) {
  const auto n = static_cast<double>(differences.size());
  const double tail = 0.5 + 0.5 * confidence;
  if (are_of_right_and_wrong(differences)) {
    return tango_interval(static_cast<double>(std::ranges::count(differences, 1.0)),
                          static_cast<double>(std::ranges::count(differences, -1.0)), n,
                          boost::math::quantile(boost::math::normal(), tail));
  }
  const double half = boost::math::quantile(boost::math::students_t(n - 1.0), tail) *
                      paired_spread(differences) / std::sqrt(n);
  return {mean(differences) - half, mean(differences) + half};
}

}  // namespace kvscope
