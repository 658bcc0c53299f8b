// Prefix masses and nucleus sizes against loops and against nucleus().
#include "core/attention/top_mass.hpp"

#include "core/attention/nucleus.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::top_mass_test {

/// The k largest, picked one after another.
double naive_mass(std::vector<double> weights, Index k) {
  double mass = 0.0;
  for (Index i = 0; i < k && !weights.empty(); ++i) {
    std::size_t best = 0;
    for (std::size_t j = 0; j < weights.size(); ++j)
      if (weights[j] > weights[best]) best = j;
    mass += weights[best];
    weights.erase(weights.begin() + static_cast<std::ptrdiff_t>(best));
  }
  return mass;
}

TEST_CASE("masses and sizes equal loops and the exact nucleus") {
  test::Random random(3);
  for (int round = 0; round < 40; ++round) {
    std::vector<double> row(static_cast<std::size_t>(1 + random.below(50)));
    // whole numbers: exact in f32, so that nucleus() sees the same row; ties and zeros among them
    for (double& x : row) x = static_cast<double>(random.below(round % 2 == 0 ? 5 : 1000));
    const std::vector<float> weights(row.begin(), row.end());
    std::vector<double> sorted = row;
    const TopMass top(sorted);
    REQUIRE(top.n_weights() == static_cast<Index>(row.size()));
    for (Index k = 0; k <= top.n_weights() + 1; ++k)
      CHECK(top.mass(k) == Approx(naive_mass(row, k)));
    for (const double p : {1e-9, 0.3, 0.5, 0.9, 0.99, 1.0})
      CHECK(top.keys_for(p) == static_cast<Index>(nucleus(weights, p, NucleusMode::exact).size()));
  }
}

}  // namespace kvscope::top_mass_test
