// Double-P: both stages against loops over RetroInfer's clusters.
#include <set>

#include "core/selectors/key_clusters.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::doublep_test {

/// The fewest of `candidates`, heaviest first, that hold a share p of their weight.
std::set<std::size_t> naive_nucleus(const std::vector<double>& weights,
                                    const std::set<std::size_t>& candidates, double p) {
  std::vector<std::size_t> order(candidates.begin(), candidates.end());
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  double total = 0.0;
  for (const std::size_t i : order) total += weights[i];
  std::set<std::size_t> kept;
  double sum = 0.0;
  for (const std::size_t i : order) {
    if (sum >= p * total) break;
    kept.insert(i);
    sum += weights[i];
  }
  return kept;
}

TEST_CASE("doublep: stage 1 keeps a share of the estimate, stage 2 a share of that exactly") {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    CallFixture fixture(step_shape(260, seed));
    if (seed % 2 == 0) {
      for (KeyPos pos = 30; pos < 130; pos += 4) fixture.alive.kill(0, pos);
    }
    fixture.call.budget = Budget::parse("p=0.7");
    const auto selector =
        made("doublep:keys-per-cluster=8,n-sink=3,n-recent=10,refine=0.6", fixture);
    const Selection selection = selector->select(fixture.call);
    for (Index kv_head = 0; kv_head < 2; ++kv_head) {
      INFO("seed " << seed << ", KV head " << kv_head);
      KeyClusters made_apart;
      made_apart.extend(fixture.call, kv_head, {3, 250}, {.keys_per_cluster = 8},
                        CounterRng({1, static_cast<std::uint64_t>(fixture.call.layer),
                                    static_cast<std::uint64_t>(kv_head)}));
      const LiveClusters clusters = made_apart.live(fixture.call, kv_head, 0);
      const auto m = static_cast<std::size_t>(clusters.count());
      std::vector<double> weights(m, 0.0);
      std::set<std::size_t> all;
      for (Index q_head = 2 * kv_head; q_head < 2 * kv_head + 2; ++q_head) {
        std::vector<double> e(m, 0.0);
        double sum = 0.0;
        for (std::size_t i = 0; i < m; ++i) {
          double dot = 0.0;
          for (Index c = 0; c < 16; ++c)
            dot += static_cast<double>(fixture.q(q_head, Index{0}, c)) *
                   static_cast<double>(clusters.k(static_cast<Index>(i), c));
          e[i] = std::exp(dot * static_cast<double>(fixture.call.score_scale)) *
                 static_cast<double>(clusters.members[i].size());
          sum += e[i];
          all.insert(i);
        }
        for (std::size_t i = 0; i < m; ++i) weights[i] += e[i] / sum;
      }
      const auto kept = naive_nucleus(weights, all, 0.7);
      const auto exact = naive_nucleus(weights, kept, 0.6);
      std::vector<KeyPos> keys;
      for (const std::size_t i : exact)
        keys.insert(keys.end(), clusters.members[i].begin(), clusters.members[i].end());
      std::ranges::sort(keys);
      CHECK(selection.at(kv_head).scored() == keys);
      std::set<float> estimated;  // first channels
      for (const std::size_t i : kept) {
        if (!exact.contains(i)) estimated.insert(clusters.k(static_cast<Index>(i), Index{0}));
      }
      std::set<float> found;
      for (Index i = selection.summaries.begin_of(kv_head); i < selection.summaries.end_of(kv_head);
           ++i)
        found.insert(selection.summaries.k(i, Index{0}));
      CHECK(found == estimated);
      CHECK(!found.empty());
    }
  }
}

}  // namespace kvscope::test::doublep_test
