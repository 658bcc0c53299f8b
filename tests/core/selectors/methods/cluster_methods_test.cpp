// RetroInfer and Double-P: ranking, lists and summaries against loops over their clusters.
#include <numeric>
#include <set>

#include "core/selectors/key_clusters.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::cluster_methods_test {

/// The clusters of a KV head, made apart from the method with the names of its random numbers.
class ClustersApart {
 public:
  ClustersApart(const CallFixture& fixture, Index kv_head, TokenRange middle,
                Index keys_per_cluster)
      : kv_head_(kv_head) {
    const CounterRng rng(
        {1, static_cast<std::uint64_t>(fixture.call.layer), static_cast<std::uint64_t>(kv_head)});
    all_.extend(fixture.call, kv_head, middle, {.keys_per_cluster = keys_per_cluster}, rng);
    live_ = all_.live(fixture.call, kv_head, 0);
  }
  const LiveClusters& live() const { return live_; }

  /// Softmax of each query over the centroids, e^(q . k) or that times the number of members,
  /// summed over the queries of the group.
  std::vector<double> weights(const CallFixture& fixture, bool of_members) const {
    const auto m = static_cast<std::size_t>(live_.count());
    std::vector<double> weights(m, 0.0);
    for (Index q_head = 2 * kv_head_; q_head < 2 * kv_head_ + 2; ++q_head) {
      for (Index row = 0; row < fixture.call.n_tok; ++row) {
        std::vector<double> e(m, 0.0);
        double sum = 0.0;
        for (std::size_t i = 0; i < m; ++i) {
          double dot = 0.0;
          for (Index c = 0; c < 16; ++c)
            dot += static_cast<double>(fixture.q(q_head, row, c)) *
                   static_cast<double>(live_.k(static_cast<Index>(i), c));
          e[i] = std::exp(dot * static_cast<double>(fixture.call.score_scale));
          if (of_members) e[i] *= static_cast<double>(live_.members[i].size());
          sum += e[i];
        }
        for (std::size_t i = 0; i < m; ++i) weights[i] += e[i] / sum;
      }
    }
    return weights;
  }

 private:
  Index kv_head_;
  KeyClusters all_;
  LiveClusters live_;
};

TEST_CASE("clusters of keys: a partition, centroids and mean values of what is alive") {
  CallFixture fixture(step_shape(220, 2));
  for (KeyPos pos = 20; pos < 120; pos += 3) fixture.alive.kill(1, pos);
  for (Index kv_head = 0; kv_head < 2; ++kv_head) {
    const ClustersApart apart(fixture, kv_head, {5, 205}, 16);
    const LiveClusters& clusters = apart.live();
    CHECK(clusters.count() <= 13);
    CHECK(clusters.count() >= 8);
    std::set<KeyPos> all;
    for (Index i = 0; i < clusters.count(); ++i) {
      const auto keys = clusters.members[i];
      CHECK(std::ranges::is_sorted(keys));
      all.insert(keys.begin(), keys.end());
      for (Index c = 0; c < 16; ++c) {
        double k = 0.0;
        double v = 0.0;
        for (const KeyPos pos : keys) {
          k += static_cast<double>(fixture.k(kv_head, Index{pos}, c)) /
               static_cast<double>(keys.size());
          v += static_cast<double>(fixture.v(kv_head, Index{pos}, c)) /
               static_cast<double>(keys.size());
        }
        CHECK(clusters.k(i, c) == Catch::Approx(k).margin(1e-5));
        CHECK(clusters.v(i, c) == Catch::Approx(v).margin(1e-5));
      }
    }
    std::set<KeyPos> expected;
    for (Index pos = 5; pos < 205; ++pos) {
      if (fixture.alive.is_alive(kv_head, static_cast<KeyPos>(pos)))
        expected.insert(static_cast<KeyPos>(pos));
    }
    CHECK(all == expected);
  }
}

TEST_CASE("retroinfer: zones are those of loops over its clusters") {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    SeededStep fixture(260, seed);
    fixture.call.budget = Budget::parse("tokens=50");
    const auto selector =
        made("retroinfer:keys-per-cluster=8,n-sink=3,n-recent=10,estimate-share=0.3", fixture);
    const Selection selection = selector->select(fixture.call);
    for (Index kv_head = 0; kv_head < 2; ++kv_head) {
      INFO("seed " << seed << ", KV head " << kv_head);
      const ClustersApart apart(fixture, kv_head, {3, 250}, 8);
      const LiveClusters& clusters = apart.live();
      const std::vector<double> weights = apart.weights(fixture, /*of_members=*/false);
      const std::size_t m = weights.size();
      std::vector<std::size_t> order(m);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::ranges::stable_sort(
          order, [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
      std::vector<KeyPos> exact;
      std::size_t next = 0;
      while (next < m && exact.size() + clusters.members[order[next]].size() <= 50) {
        exact.insert(exact.end(), clusters.members[order[next]].begin(),
                     clusters.members[order[next]].end());
        ++next;
      }
      std::ranges::sort(exact);
      CHECK(selection.at(kv_head).scored() == exact);
      std::multiset<std::pair<float, float>> estimated;  // first channel, log of the size
      for (std::size_t i = next;
           i < std::min(m, next + static_cast<std::size_t>(0.3 * static_cast<double>(m))); ++i) {
        estimated.emplace(clusters.k(static_cast<Index>(order[i]), Index{0}),
                          std::log(static_cast<float>(clusters.members[order[i]].size())));
      }
      std::multiset<std::pair<float, float>> found;
      for (Index i = selection.summaries.begin_of(kv_head); i < selection.summaries.end_of(kv_head);
           ++i)
        found.emplace(selection.summaries.k(i, Index{0}), selection.summaries.log_count[i]);
      CHECK(found == estimated);
      std::vector<KeyPos> forced = positions(0, 3);
      for (const KeyPos pos : positions(250, 260 + fixture.call.n_tok)) forced.push_back(pos);
      CHECK(selection.at(kv_head).forced() == forced);
    }
  }
}

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
      const ClustersApart apart(fixture, kv_head, {3, 250}, 8);
      const LiveClusters& clusters = apart.live();
      const std::vector<double> weights = apart.weights(fixture, /*of_members=*/true);
      std::set<std::size_t> all;
      for (std::size_t i = 0; i < weights.size(); ++i) all.insert(i);
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
      const Summaries& summaries = selection.summaries;
      for (Index i = summaries.begin_of(kv_head); i < summaries.end_of(kv_head); ++i)
        found.insert(summaries.k(i, Index{0}));
      CHECK(found == estimated);
      CHECK(!found.empty());
    }
  }
}

}  // namespace kvscope::test::cluster_methods_test
