// Nuclei against sorting: the exact one, and what SpecAttn's printed search misses.
#include "core/attention/nucleus.hpp"

#include <random>

#include "tests/support/test.hpp"

namespace kvscope::nucleus_test {

std::vector<float> softmax_row(std::size_t n, float sigma, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<double> e(n);
  double sum = 0.0;
  for (double& x : e) sum += x = std::exp(static_cast<double>(normal(rng)));
  std::vector<float> row;
  for (const double x : e) row.push_back(static_cast<float>(x / sum));
  for (std::size_t i = 0; i + 3 < n; i += 5) row[i + 3] = row[i];  // ties
  return row;
}

double mass_of(const std::vector<float>& row, const std::vector<Index>& kept) {
  double mass = 0.0;
  for (const Index i : kept) mass += static_cast<double>(row[i]);
  return mass;
}

double total_of(const std::vector<float>& row) {
  double mass = 0.0;
  for (const float a : row) mass += static_cast<double>(a);
  return mass;
}

std::size_t size_by_sorting(std::vector<float> row, double p) {
  const double target = p * total_of(row);
  std::sort(row.rbegin(), row.rend());
  double mass = 0.0;
  std::size_t n = 0;
  while (n < row.size() && mass < target) mass += static_cast<double>(row[n++]);
  return n;
}

TEST_CASE("exact nucleus has the size that sorting gives and reaches the target") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    // every third row nearly flat: its weights are told apart by their last digits
    const float sigma = seed % 3 == 0 ? 0.01f : 0.5f + 0.05f * static_cast<float>(seed);
    const auto row = softmax_row(1 + seed * 140, sigma, seed);
    for (const double p : {0.05, 0.5, 0.9, 0.99}) {
      const auto kept = nucleus(row, p, NucleusMode::exact);
      CHECK(kept.size() == size_by_sorting(row, p));
      CHECK(mass_of(row, kept) >= p * total_of(row) - 1e-12);
      CHECK(std::ranges::is_sorted(kept));
    }
  }
}

TEST_CASE("nucleus: ties by rising index, p >= 1, zero rows, single keys, bad p") {
  const std::vector<float> ties = {0.25f, 0.25f, 0.25f, 0.25f};
  CHECK(nucleus(ties, 0.5, NucleusMode::exact) == std::vector<Index>{0, 1});
  CHECK(nucleus(ties, 0.51, NucleusMode::exact) == std::vector<Index>{0, 1, 2});
  CHECK(nucleus(std::vector<float>{0.0f, 1.0f, 0.0f}, 1.0, NucleusMode::safe_low) ==
        std::vector<Index>{1});
  CHECK(nucleus(std::vector<float>{0.0f, 0.0f}, 0.9, NucleusMode::exact).empty());
  CHECK(nucleus(std::vector<float>{}, 0.9, NucleusMode::exact).empty());
  CHECK(nucleus(std::vector<float>{1.0f}, 0.9, NucleusMode::exact) == std::vector<Index>{0});
  CHECK_THROWS_AS(nucleus(ties, 0.0, NucleusMode::exact), ConfigError);
  // weights too small for the absolute width: the search never starts and everything is kept
  CHECK(nucleus(std::vector<float>(4, 1e-7f), 0.5, NucleusMode::paper_eps).size() == 4);
}

}  // namespace kvscope::nucleus_test
