// Anchor layers by dynamic programming against all subsets.
#include "core/attention/anchor_layers.hpp"

#include "core/base/rng.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::anchor_layers_test {

/// The best score of all divisions, and the first division in order of its layers that has it.
AnchorLayers naive_best(const Tensor<double>& sim, Index n_anchors) {
  const Index n = sim.dim(0);
  AnchorLayers best{{}, -1e300};
  for (Index bits = 0; bits < (Index{1} << n); ++bits) {
    std::vector<Index> anchors;
    for (Index layer = 0; layer < n; ++layer) {
      if ((bits >> layer & 1) != 0) anchors.push_back(layer);
    }
    if (static_cast<Index>(anchors.size()) != n_anchors || anchors.front() != 0) continue;
    double score = 0.0;
    for (Index layer = 0, anchor = 0; layer < n; ++layer) {
      if ((bits >> layer & 1) != 0) anchor = layer;
      score += sim(anchor, layer);
    }
    if (score > best.score + 1e-12 || (score > best.score - 1e-12 && anchors < best.anchors))
      best = {anchors, score};
  }
  return best;
}

TEST_CASE("anchor layers have the largest sum of all divisions") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Index n = 1 + static_cast<Index>(seed % 7);
    const CounterRng rng({seed});
    Tensor<double> sim(Shape{n, n});
    for (Index i = 0; i < sim.count(); ++i)
      sim.data()[i] = rng.uniform(static_cast<std::uint64_t>(i));
    for (Index k = 1; k <= n; ++k) {
      INFO("seed " << seed << ", " << k << " of " << n);
      const AnchorLayers found = best_anchor_layers(sim.view(), k);
      const AnchorLayers expected = naive_best(sim, k);
      CHECK(found.anchors == expected.anchors);
      CHECK(found.score == Catch::Approx(expected.score));
    }
  }
}

}  // namespace kvscope::test::anchor_layers_test
