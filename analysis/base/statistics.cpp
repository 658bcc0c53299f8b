#include "analysis/base/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "analysis/base/mapped.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

constexpr double kRounding = 8 * std::numeric_limits<double>::epsilon();
constexpr double kUnexplained = 1e-12;  // share of a variance that is rounding and nothing else

/// True if deviations whose squares sum to `squares` are no more than the rounding of x.
bool is_constant(std::span<const double> x, double squares) {
  double largest = 0.0;
  for (double value : x) largest = std::max(largest, std::abs(value));
  const double noise = kRounding * largest;
  return !(squares > static_cast<double>(x.size()) * noise * noise);
}

/// The mean of entries without NaN, to the last bit or two: a long sum's rounding would look like a
/// deviation that all entries share.
double center_of(std::span<const double> x) {
  const double first = mean(x);
  Mean rest;
  for (double value : x) rest.add(value - first);
  return first + rest.value();
}

/// Pearson's over pairs without NaN.
double correlation_of_complete(std::span<const double> x, std::span<const double> y) {
  if (x.size() < 2) return kNan;
  const double mean_x = center_of(x);
  const double mean_y = center_of(y);
  double xx = 0.0;
  double yy = 0.0;
  double xy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i] - mean_x;
    const double dy = y[i] - mean_y;
    xx += dx * dx;
    yy += dy * dy;
    xy += dx * dy;
  }
  if (is_constant(x, xx) || is_constant(y, yy)) return kNan;
  return std::clamp(xy / std::sqrt(xx) / std::sqrt(yy), -1.0, 1.0);
}

struct Pairs {
  std::vector<double> x;
  std::vector<double> y;
};

Pairs complete_pairs(std::span<const double> x, std::span<const double> y) {
  Pairs pairs;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) || std::isnan(y[i])) continue;
    pairs.x.push_back(x[i]);
    pairs.y.push_back(y[i]);
  }
  return pairs;
}

/// The triples without NaN.
std::array<std::vector<double>, 3> complete_triples(std::span<const double> x,
                                                    std::span<const double> y,
                                                    std::span<const double> z) {
  std::array<std::vector<double>, 3> triples;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) || std::isnan(y[i]) || std::isnan(z[i])) continue;
    triples[0].push_back(x[i]);
    triples[1].push_back(y[i]);
    triples[2].push_back(z[i]);
  }
  return triples;
}

double partial_of_complete(std::span<const double> x, std::span<const double> y,
                           std::span<const double> z) {
  const double xy = correlation_of_complete(x, y);
  const double xz = correlation_of_complete(x, z);
  const double yz = correlation_of_complete(y, z);
  const double rest_x = 1.0 - xz * xz;
  const double rest_y = 1.0 - yz * yz;
  if (!(rest_x > kUnexplained && rest_y > kUnexplained)) return kNan;
  return std::clamp((xy - xz * yz) / std::sqrt(rest_x * rest_y), -1.0, 1.0);
}

}  // namespace

double Mean::value() const {
  return n_ > 0 ? sum_ / static_cast<double>(n_) : kNan;
}

double mean(std::span<const double> x) {
  Mean result;
  for (double value : x) result.add(value);
  return result.value();
}

double quantile(std::span<const double> x, double q) {
  std::vector<double> sorted;
  std::copy_if(x.begin(), x.end(), std::back_inserter(sorted),
               [](double value) { return !std::isnan(value); });
  if (sorted.empty()) return kNan;
  std::ranges::sort(sorted);
  const double at = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

std::vector<double> ranks_of(std::span<const double> x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
  std::vector<double> ranks(x.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last + 1 < order.size() && x[order[last + 1]] == x[order[first]]) ++last;
    const double rank = 0.5 * static_cast<double>(first + last) + 1.0;
    for (std::size_t i = first; i <= last; ++i) ranks[order[i]] = rank;
    first = last + 1;
  }
  return ranks;
}

double pearson(std::span<const double> x, std::span<const double> y) {
  const Pairs pairs = complete_pairs(x, y);
  return correlation_of_complete(pairs.x, pairs.y);
}

double spearman(std::span<const double> x, std::span<const double> y) {
  const Pairs pairs = complete_pairs(x, y);
  return correlation_of_complete(ranks_of(pairs.x), ranks_of(pairs.y));
}

double partial_correlation(std::span<const double> x, std::span<const double> y,
                           std::span<const double> z) {
  const auto [a, b, c] = complete_triples(x, y, z);
  return partial_of_complete(a, b, c);
}

double partial_spearman(std::span<const double> x, std::span<const double> y,
                        std::span<const double> z) {
  const auto [a, b, c] = complete_triples(x, y, z);
  return partial_of_complete(ranks_of(a), ranks_of(b), ranks_of(c));
}

nlohmann::ordered_json json_number(double x) {
  return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json json_numbers(std::span<const double> values) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const double x : values) list.push_back(json_number(x));
  return list;
}

std::vector<double> numbers_from_json(const nlohmann::ordered_json& list, std::size_t n) {
  if (!list.is_array() || list.size() != n)
    throw ConfigError("{} for a list of {} numbers", describe(list), n);
  return mapped<double>(
      list, [](const auto& x) { return x.is_null() ? kNan : x.template get<double>(); });
}

}  // namespace kvscope
