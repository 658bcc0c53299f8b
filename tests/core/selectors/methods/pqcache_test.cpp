// PQCache: its scores and lists against loops over codes.
#include <fmt/format.h>

#include "core/selectors/k_means.hpp"
#include "core/selectors/method_spec.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::pqcache_test {

/// Scores of the past keys of a KV head: both halves of a key by their nearest centroid, or softmax
/// weights of these over the keys that compete; summed over heads and rows.
std::vector<double> naive_scores(const CallFixture& fixture, Index kv_head, Index n_sink,
                                 Index n_recent, Index n_centroids, bool is_inner,
                                 bool sums_weights, std::uint64_t seed) {
  const Index n_past = fixture.call.pos_begin;
  const Index half = fixture.k.dim(2) / 2;
  // [heads and rows of the group][n_past].
  std::vector<std::vector<double>> by_query(
      static_cast<std::size_t>(fixture.group() * fixture.call.n_tok),
      std::vector<double>(static_cast<std::size_t>(n_past), 0.0));
  for (Index part = 0; part < 2; ++part) {
    const Index width = half + (is_inner ? 1 : 0);
    double phi = 0.0;
    std::vector<Index> learners;
    for (Index pos = n_sink; pos < n_past; ++pos) {
      if (!fixture.alive.is_alive(kv_head, static_cast<KeyPos>(pos))) continue;
      learners.push_back(pos);
      double square = 0.0;
      for (Index c = 0; c < half; ++c)
        square += std::pow(static_cast<double>(fixture.k(kv_head, pos, part * half + c)), 2.0);
      phi = std::max(phi, square);
    }
    const auto row_of = [&](Index pos) {
      std::vector<float> row;
      double square = 0.0;
      for (Index c = 0; c < half; ++c) {
        row.push_back(fixture.k(kv_head, pos, part * half + c));
        square += std::pow(static_cast<double>(row.back()), 2.0);
      }
      if (is_inner) row.push_back(static_cast<float>(std::sqrt(std::max(0.0, phi - square))));
      return row;
    };
    Tensor<float> rows({static_cast<Index>(learners.size()), width});
    for (std::size_t i = 0; i < learners.size(); ++i) {
      const std::vector<float> row = row_of(learners[i]);
      std::copy(row.begin(), row.end(), rows.view().row(static_cast<Index>(i)).begin());
    }
    const CounterRng rng({seed, static_cast<std::uint64_t>(fixture.call.layer),
                          static_cast<std::uint64_t>(kv_head), static_cast<std::uint64_t>(part)});
    const Tensor<float> centroids =
        k_means(rows.view(), {.n_clusters = n_centroids, .n_iterations = 25}, rng).centroids;
    for (Index pos = 0; pos < n_past; ++pos) {
      const std::vector<float> row = row_of(pos);
      Index best = 0;
      double least = 1e300;
      for (Index i = 0; i < centroids.dim(0); ++i) {
        double distance = 0.0;
        for (Index c = 0; c < width; ++c)
          distance +=
              std::pow(static_cast<double>(row[c]) - static_cast<double>(centroids(i, c)), 2.0);
        if (distance < least) {
          least = distance;
          best = i;
        }
      }
      for (Index q_head = kv_head * fixture.group(); q_head < (kv_head + 1) * fixture.group();
           ++q_head) {
        for (Index t = 0; t < fixture.call.n_tok; ++t) {
          for (Index c = 0; c < half; ++c) {
            const Index query = (q_head - kv_head * fixture.group()) * fixture.call.n_tok + t;
            by_query[query][pos] += static_cast<double>(fixture.q(q_head, t, part * half + c)) *
                                    static_cast<double>(centroids(best, c));
          }
        }
      }
    }
  }
  std::vector<double> scores(static_cast<std::size_t>(n_past), 0.0);
  for (const std::vector<double>& of_query : by_query) {
    const double scale = sums_weights ? static_cast<double>(fixture.call.score_scale) : 1.0;
    double total = 0.0;
    for (Index pos = n_sink; pos < n_past - n_recent; ++pos) {
      if (fixture.alive.is_alive(kv_head, static_cast<KeyPos>(pos)))
        total += std::exp(scale * of_query[pos]);
    }
    for (std::size_t pos = 0; pos < scores.size(); ++pos)
      scores[pos] += sums_weights ? std::exp(scale * of_query[pos]) / total : of_query[pos];
  }
  return scores;
}

TEST_CASE("pqcache: lists are those of loops over centroids") {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    SeededStep fixture(200, seed);
    const bool is_inner = seed % 2 == 0;
    // what the program sums with its metric, or the other of the two
    const bool is_automatic = seed <= 4;
    const bool sums_weights = is_automatic ? !is_inner : is_inner;
    const std::string group = is_automatic ? "" : sums_weights ? ",group=softmax" : ",group=scores";
    fixture.call.budget = Budget::parse("tokens=20");
    const auto selector = made(fmt::format("pqcache:bits=4,n-sink=5,n-recent=9,seed=3,metric={}{}",
                                           is_inner ? "inner" : "euclidean", group),
                               fixture);
    const Selection selection = selector->select(fixture.call);
    for (Index kv_head = 0; kv_head < 2; ++kv_head) {
      INFO("seed " << seed << ", KV head " << kv_head);
      std::vector<double> scores =
          naive_scores(fixture, kv_head, 5, 9, 16, is_inner, sums_weights, 3);
      for (Index pos = 0; pos < 200; ++pos) {
        const bool competes =
            pos >= 5 && pos < 191 && fixture.alive.is_alive(kv_head, static_cast<KeyPos>(pos));
        if (!competes) scores[pos] = -std::numeric_limits<double>::infinity();
      }
      const std::vector<KeyPos> naive = naive_top_k(scores, 20);
      const std::vector<KeyPos> found = selection.at(kv_head).scored();
      std::vector<KeyPos> common;
      std::set_intersection(naive.begin(), naive.end(), found.begin(), found.end(),
                            std::back_inserter(common));
      CHECK(found.size() == 20);
      // Keys of one cell tie but for rounding: two cells may meet at the cut.
      CHECK(common.size() >= 18);
      std::vector<KeyPos> forced = positions(0, 5);
      for (const KeyPos pos : positions(191, 200 + fixture.call.n_tok)) forced.push_back(pos);
      CHECK(selection.at(kv_head).forced() == forced);
    }
  }
}

}  // namespace kvscope::test::pqcache_test
