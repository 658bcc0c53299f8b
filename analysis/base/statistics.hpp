// Small statistics over plain spans: means, quantiles, ranks, correlations; and numbers as JSON.
// NaN entries count as missing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "core/base/evenly_spaced.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

struct Interval {
  double low = 0.0;
  double high = 0.0;
};

/// Mean of the entries that are not NaN; NaN if there are none.
double mean(std::span<const double> x);

/// The q-quantile (0 <= q <= 1) of the entries that are not NaN, linear between neighbours; NaN if
/// there are none.
double quantile(std::span<const double> x, double q);

/// Ranks from 1, without NaN entries among x; ties share their mean rank.
std::vector<double> ranks_of(std::span<const double> x);

/// Pearson's correlation over the pairs in which neither is NaN; NaN with fewer than 2 pairs or if
/// one side is constant up to the rounding of its own magnitude.
double pearson(std::span<const double> x, std::span<const double> y);

/// Spearman's: Pearson's of the ranks, ties sharing their mean rank.
double spearman(std::span<const double> x, std::span<const double> y);

/// Correlation of x and y with the linear part that z explains taken out of both, over the triples
/// without NaN; NaN if z explains all of x or y (up to rounding), or one of the three is constant.
double partial_correlation(std::span<const double> x, std::span<const double> y,
                           std::span<const double> z);

/// The same of the ranks of x, y and z: Spearman's given z.
double partial_spearman(std::span<const double> x, std::span<const double> y,
                        std::span<const double> z);

/// A running mean that ignores NaN.
class Mean {
 public:
  void add(double x) {
    if (x == x) {
      sum_ += x;
      ++n_;
    }
  }
  std::int64_t n() const { return n_; }
  /// NaN if nothing was added.
  double value() const;

 private:
  double sum_ = 0.0;
  std::int64_t n_ = 0;
};

/// The number, or null where JSON has none (NaN, infinities).
nlohmann::ordered_json json_number(double x);
nlohmann::ordered_json json_numbers(std::span<const double> values);

/// Such a list of n numbers, null as NaN. Throws ConfigError for another one.
std::vector<double> numbers_from_json(const nlohmann::ordered_json& list, std::size_t n);

}  // namespace kvscope
