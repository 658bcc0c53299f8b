#include "analysis/simulate/intervals.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/base/statistics.hpp"
#include "core/base/nan.hpp"
#include "core/base/rng.hpp"

namespace kvscope {

namespace {

constexpr double kZ95 = 1.959963984540054;  // the normal quantile of 0.975

template <class T>
bool has_several(std::span<const T> values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end();
}

Interval mean_over_texts(std::vector<double> values, std::span<const std::size_t> text,
                         std::initializer_list<std::uint64_t> stream) {
  return percentiles95(bootstrap_over_texts({std::move(values)}, text, stream).front());
}

std::size_t drawn_place(const CounterRng& rng, std::uint64_t& counter, std::size_t n) {
  const auto at = static_cast<std::size_t>(rng.uniform(counter++) * static_cast<double>(n));
  return std::min(at, n - 1);
}

}  // namespace

Interval wilson_interval(double hits, double n) {
  if (!(n > 0.0)) return {kNan, kNan};
  const double p = hits / n;
  const double z2 = kZ95 * kZ95;
  const double centre = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
  const double half = kZ95 / (1.0 + z2 / n) * std::sqrt(p * (1.0 - p) / n + z2 / (4.0 * n * n));
  // at 0 and n one end is exact, which rounding would miss
  return {hits <= 0.0 ? 0.0 : std::max(0.0, centre - half),
          hits >= n ? 1.0 : std::min(1.0, centre + half)};
}

Interval percentiles95(std::span<const double> resampled) {
  return {quantile(resampled, 0.025), quantile(resampled, 0.975)};
}

std::vector<std::vector<double>> bootstrap_over_texts(
    const std::vector<std::vector<double>>& values, std::span<const std::size_t> text,
    std::initializer_list<std::uint64_t> stream) {
  std::vector<std::vector<std::vector<std::vector<double>>>> by_text;
  for (const std::vector<double>& series : values) {
    std::map<std::size_t, std::vector<std::vector<double>>> prompts;
    for (std::size_t i = 0; i < series.size(); ++i)
      prompts[text.empty() ? 0 : text[i]].push_back({series[i]});
    by_text.emplace_back();
    for (auto& [name, of_text] : prompts) by_text.back().push_back(std::move(of_text));
  }
  return nested_bootstrap(by_text, kIntervalResamples, stream);
}

Interval score_interval(std::span<const double> scores, std::initializer_list<std::uint64_t> stream,
                        std::span<const std::size_t> text) {
  if (scores.empty()) return {kNan, kNan};
  if (has_several(text) && has_several(scores))
    return mean_over_texts({scores.begin(), scores.end()}, text, stream);
  const bool is_share =
      std::all_of(scores.begin(), scores.end(), [](double x) { return x == 0.0 || x == 1.0; });
  if (!is_share) return bootstrap_mean(scores, kIntervalResamples, stream);
  double hits = 0.0;
  for (const double x : scores) hits += x;
  return wilson_interval(hits, static_cast<double>(scores.size()));
}

double mcnemar_exact(Index b, Index c) {
  const Index n = b + c;
  if (n == 0) return 1.0;
  // sums of exp(log binomials): no overflow for any number of pairs
  double sum = 0.0;
  for (Index k = 0; k <= std::min(b, c); ++k) {
    const double log_choose = std::lgamma(static_cast<double>(n) + 1.0) -
                              std::lgamma(static_cast<double>(k) + 1.0) -
                              std::lgamma(static_cast<double>(n - k) + 1.0);
    sum += std::exp(log_choose - static_cast<double>(n) * std::log(2.0));
  }
  return std::min(1.0, 2.0 * sum);
}

PairedTest paired_test(std::span<const double> a, std::span<const double> b,
                       std::initializer_list<std::uint64_t> stream,
                       std::span<const std::size_t> text) {
  PairedTest test;
  test.n = static_cast<Index>(std::min(a.size(), b.size()));
  std::vector<double> differences;
  for (std::size_t i = 0; i < static_cast<std::size_t>(test.n); ++i) {
    differences.push_back(a[i] - b[i]);
    test.only_first += a[i] > b[i] ? 1 : 0;
    test.only_second += a[i] < b[i] ? 1 : 0;
  }
  test.difference = mean(differences);
  test.p = mcnemar_exact(test.only_first, test.only_second);
  test.interval = has_several(text) ? mean_over_texts(std::move(differences), text, stream)
                                    : bootstrap_mean(differences, kIntervalResamples, stream);
  return test;
}

std::vector<std::vector<double>> nested_bootstrap(
    const std::vector<std::vector<std::vector<std::vector<double>>>>& values, Index n_resamples,
    std::initializer_list<std::uint64_t> stream) {
  std::vector<std::vector<double>> means(values.size());
  if (values.empty() || values.front().empty() || values.front().front().empty()) return means;
  const CounterRng rng(stream);
  std::uint64_t counter = 0;
  const auto& shape = values.front();
  for (Index i = 0; i < n_resamples; ++i) {
    std::vector<double> sums(values.size(), 0.0);
    double n = 0.0;
    for (std::size_t t = 0; t < shape.size(); ++t) {
      const std::size_t text = shape.size() == 1 ? 0 : drawn_place(rng, counter, shape.size());
      const std::size_t n_groups = shape[text].size();
      for (std::size_t k = 0; k < n_groups; ++k) {
        const std::size_t group = drawn_place(rng, counter, n_groups);
        const std::size_t n_members = shape[text][group].size();
        for (std::size_t m = 0; m < n_members; ++m) {
          const std::size_t member = drawn_place(rng, counter, n_members);
          for (std::size_t s = 0; s < values.size(); ++s) sums[s] += values[s][text][group][member];
        }
        n += static_cast<double>(n_members);
      }
    }
    for (std::size_t s = 0; s < values.size(); ++s) means[s].push_back(sums[s] / n);
  }
  return means;
}

}  // namespace kvscope
