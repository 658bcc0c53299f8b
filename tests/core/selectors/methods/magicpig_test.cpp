// MagicPIG: its sample and weights against loops over sign bits.
#include <fmt/format.h>

#include <numbers>

#include "core/base/rng.hpp"
#include "core/selectors/lsh_tables.hpp"
#include "core/selectors/method_spec.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::magicpig_test {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0.0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

/// SimpleLSH by loops: keys before the call, centred and lengthened; queries with a zero at the
/// end.
struct NaiveHashes {
  std::vector<Vector> keys;
  Vector query;
  std::vector<Vector> planes;

  NaiveHashes(const CallFixture& fixture, Index q_head, Index row, Index n_planes,
              std::uint64_t seed) {
    const Index kv_head = q_head / fixture.group();
    const Index d = fixture.q.dim(2);
    Vector mean(static_cast<std::size_t>(d), 0.0);
    double n_alive = 0.0;
    for (Index pos = 0; pos < fixture.call.pos_begin; ++pos) {
      if (!fixture.alive.is_alive(kv_head, static_cast<KeyPos>(pos))) continue;
      for (Index c = 0; c < d; ++c) mean[c] += static_cast<double>(fixture.k(kv_head, pos, c));
      n_alive += 1.0;
    }
    for (double& x : mean) x /= n_alive;
    double largest = 0.0;
    for (Index pos = 0; pos < fixture.call.pos_begin; ++pos) {
      Vector key;
      for (Index c = 0; c < d; ++c)
        key.push_back(static_cast<double>(fixture.k(kv_head, pos, c)) - mean[c]);
      if (fixture.alive.is_alive(kv_head, static_cast<KeyPos>(pos)))
        largest = std::max(largest, dot(key, key));
      keys.push_back(key);
    }
    for (Vector& key : keys) key.push_back(std::sqrt(std::max(0.0, largest - dot(key, key))));
    for (Index c = 0; c < d; ++c) query.push_back(static_cast<double>(fixture.q(q_head, row, c)));
    query.push_back(0.0);
    const CounterRng rng({seed, static_cast<std::uint64_t>(fixture.call.layer),
                          static_cast<std::uint64_t>(kv_head)});
    std::uint64_t counter = 0;
    for (Index plane = 0; plane < n_planes; ++plane) {
      planes.emplace_back();
      for (Index c = 0; c <= d; ++c) planes.back().push_back(rng.normal(counter++));
    }
  }

  /// Tables in which a key has the query's code.
  Index n_collisions(std::size_t key, Index n_bits) const {
    Index n = 0;
    for (std::size_t table = 0; table * static_cast<std::size_t>(n_bits) < planes.size(); ++table) {
      bool is_equal = true;
      for (std::size_t bit = 0; bit < static_cast<std::size_t>(n_bits); ++bit) {
        const Vector& plane = planes[table * static_cast<std::size_t>(n_bits) + bit];
        is_equal = is_equal && (dot(plane, keys[key]) > 0.0) == (dot(plane, query) > 0.0);
      }
      n += is_equal ? 1 : 0;
    }
    return n;
  }

  double log_weight(std::size_t key, Index n_bits, Index n_tables, Index n_needed) const {
    const double cosine =
        dot(keys[key], query) / std::sqrt(dot(keys[key], keys[key]) * dot(query, query));
    const double hit =
        std::pow(1.0 - std::acos(cosine) / std::numbers::pi, static_cast<double>(n_bits));
    const auto n = static_cast<double>(n_tables);
    double u = 1.0 - std::pow(1.0 - hit, n);
    if (n_needed == 2) u -= n * hit * std::pow(1.0 - hit, n - 1.0);
    return -std::log(u);
  }
};

TEST_CASE("magicpig: what collides is sampled, with the weight of its angle") {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    SeededStep fixture(120, seed);
    const Index n_needed = 1 + static_cast<Index>(seed % 2);
    const auto selector = made(
        fmt::format("magicpig:bits=4,tables=12,needed={},n-sink=3,n-recent=7,seed=5", n_needed),
        fixture);
    const Selection selection = selector->select(fixture.call);
    for (Index q_head = 0; q_head < 4; ++q_head) {
      for (Index row = 0; row < fixture.call.n_tok; ++row) {
        INFO("seed " << seed << ", head " << q_head << ", row " << row);
        const NaiveHashes naive(fixture, q_head, row, 48, 5);
        const ListView list = selection.list(q_head, row);
        const Index own = 120 + row;
        std::vector<KeyPos> forced;
        std::vector<KeyPos> sampled;
        for (Index pos = 0; pos <= own; ++pos) {
          if (!fixture.sees(q_head, row, pos)) continue;
          const bool is_past = pos < 120;
          if (pos < 3 || pos >= own - 7 || !is_past) {
            forced.push_back(static_cast<KeyPos>(pos));
          } else if (naive.n_collisions(static_cast<std::size_t>(pos), 4) >= n_needed) {
            sampled.push_back(static_cast<KeyPos>(pos));
          }
        }
        CHECK(list.scored() == sampled);
        CHECK(list.forced() == forced);
        for (std::size_t i = 0; i < list.keys.size(); ++i) {
          const double expected =
              list.is_forced[i] != 0
                  ? 0.0
                  : naive.log_weight(static_cast<std::size_t>(list.keys[i]), 4, 12, n_needed);
          CHECK(list.log_weight[i] == Catch::Approx(expected).epsilon(1e-4).margin(1e-6));
        }
      }
    }
  }
}

TEST_CASE("magicpig: the probability of rare samples keeps its digits") {
  CHECK(lsh_sampling_probability(1.0, 10, 150, 2) == 1.0);
  CHECK(lsh_sampling_probability(0.5, 10, 150, 1) ==
        Catch::Approx(1.0 - std::pow(1.0 - std::pow(2.0, -10.0), 150.0)));
  CHECK(lsh_sampling_probability(0.5, 10, 150, 2) ==
        Catch::Approx(0.00968).epsilon(0.01));     // "u = 1 %" of the file
  for (const double p : {0.15, 0.2, 0.25, 0.3}) {  // around the border of the series
    const double hit = std::pow(p, 10.0);
    double u = 0.0;  // all terms of the binomial law beyond one hit that matter
    double term = 1.0;
    for (int m = 1; m <= 12; ++m) {
      term *= (150.0 - m + 1.0) / m * hit;
      if (m >= 2) u += term * std::pow(1.0 - hit, 150.0 - m);
    }
    CHECK(lsh_sampling_probability(p, 10, 150, 2) == Catch::Approx(u).epsilon(1e-6));
  }
  CHECK(lsh_sampling_probability(0.0, 10, 150, 2) > 0.0);
}

TEST_CASE("magicpig: dense layers") {
  CallFixture fixture(step_shape(90, 4));
  for (const Index layer : {0, 1, 3, 6}) {
    fixture.call.layer = layer;
    CHECK(made("magicpig:dense-every=3", fixture)->select(fixture.call).is_dense ==
          (layer % 3 == 0));
    CHECK_FALSE(made("magicpig-hub", fixture)->select(fixture.call).is_dense);
  }
  CHECK(MethodSpec("magicpig").caps().dense_layers == 1);
  CHECK(MethodSpec("magicpig").caps().budgets.empty());
}

}  // namespace kvscope::test::magicpig_test
