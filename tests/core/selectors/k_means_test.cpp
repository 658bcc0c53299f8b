// k-means against loops: the same start, the same steps.
#include <random>

#include "core/selectors/k_means.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::k_means_test {

using Rows = std::vector<std::vector<double>>;

double squared_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += (a[c] - b[c]) * (a[c] - b[c]);
  return sum;
}

std::vector<double> unit(std::vector<double> x) {
  const double norm = std::sqrt(squared_distance(x, std::vector<double>(x.size(), 0.0)));
  if (norm > 0.0) {
    for (double& value : x) value /= norm;
  }
  return x;
}

Rows rows_of(const Tensor<float>& x) {
  Rows out;
  for (Index i = 0; i < x.dim(0); ++i) {
    const auto row = x.view().row(i);
    out.emplace_back(row.begin(), row.end());
  }
  return out;
}

/// Lloyd's steps by loops from given centroids; spherical: on unit vectors, whose distances order
/// as cosines do.
std::vector<std::int32_t> naive_labels(Rows rows, Rows centroids, bool is_spherical,
                                       Index n_steps) {
  if (is_spherical) {
    for (auto& row : rows) row = unit(row);
    for (auto& centroid : centroids) centroid = unit(centroid);
  }
  std::vector<std::int32_t> labels(rows.size());
  for (Index step = 0; step <= n_steps; ++step) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::size_t best = 0;
      for (std::size_t c = 1; c < centroids.size(); ++c) {
        if (squared_distance(rows[i], centroids[c]) < squared_distance(rows[i], centroids[best]))
          best = c;
      }
      labels[i] = static_cast<std::int32_t>(best);
    }
    if (step == n_steps) break;
    for (std::size_t c = 0; c < centroids.size(); ++c) {
      std::vector<double> mean(rows[0].size(), 0.0);
      double n = 0.0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (labels[i] != static_cast<std::int32_t>(c)) continue;
        for (std::size_t x = 0; x < mean.size(); ++x) mean[x] += rows[i][x];
        n += 1.0;
      }
      if (n == 0.0) continue;
      for (double& x : mean) x /= n;
      centroids[c] = is_spherical ? unit(mean) : mean;
    }
  }
  return labels;
}

TEST_CASE("k-means: Lloyd's steps from drawn rows") {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    std::mt19937 rng(seed);
    const Tensor<float> rows = random_tensor({300, 12}, rng);
    const CounterRng names({seed});
    for (const KMeansSpace space : {KMeansSpace::euclidean, KMeansSpace::spherical}) {
      KMeansOptions options{.n_clusters = 20, .n_iterations = 0, .space = space};
      const KMeans start = k_means(rows.view(), options, names);
      REQUIRE(start.centroids.dim(0) == 20);
      for (const Index n_steps : {1, 4}) {
        options.n_iterations = n_steps;
        const KMeans found = k_means(rows.view(), options, names);
        const auto naive = naive_labels(rows_of(rows), rows_of(start.centroids),
                                        space == KMeansSpace::spherical, n_steps);
        Index n_equal = 0;
        for (std::size_t i = 0; i < naive.size(); ++i)
          n_equal += found.labels[i] == naive[i] ? 1 : 0;
        CHECK(n_equal >= 298);  // f32 against f64: a row between two centroids
        std::vector<std::int32_t> again(300);
        nearest_centroids(rows.view(), found.centroids.view(), space, again);
        CHECK(again == found.labels);
      }
    }
  }
}

}  // namespace kvscope::test::k_means_test
