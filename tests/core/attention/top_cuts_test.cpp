// Cuts of Top_k and selection kernels against sorting.
#include <array>

#include "core/attention/key_kernels.hpp"
#include "core/attention/list_kernels.hpp"
#include "core/attention/top_cuts.hpp"
#include "core/attention/topk.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::top_cuts_test {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// The k best by sorting all: score falling, index rising, without -inf; ascending.
std::vector<Index> sorted_best(const std::vector<double>& scores, Index k) {
  std::vector<Index> order;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > -kInf) order.push_back(static_cast<Index>(i));
  }
  std::ranges::stable_sort(order, [&](Index a, Index b) { return scores[a] > scores[b]; });
  order.resize(static_cast<std::size_t>(std::clamp<Index>(k, 0, static_cast<Index>(order.size()))));
  std::ranges::sort(order);
  return order;
}

/// Rows of very different kinds: smooth, with ties, constant, sorted both ways, with holes.
std::vector<std::vector<double>> rows(Random& random, Index n) {
  const auto size = static_cast<std::size_t>(n);
  std::vector<std::vector<double>> out(6, std::vector<double>(size));
  for (std::size_t i = 0; i < size; ++i) {
    out[0][i] = random.normal();
    out[1][i] = std::round(2.0 * random.normal());
    out[2][i] = 1.5;
    out[3][i] = static_cast<double>(i);
    out[4][i] = -static_cast<double>(i / 3);
    out[5][i] = random.uniform() < 0.3 ? -kInf : std::round(10.0 * random.normal());
  }
  return out;
}

TEST_CASE("cuts name the same sets as sorting, for many k at once") {
  Random random(7);
  TopCuts finder;
  for (const Index n : {1, 2, 9, 100, 2047, 2048, 5000}) {
    for (const auto& scores : rows(random, n)) {
      const std::vector<Index> ks = {n / 2, 1, 0, 10, n, n + 5, n / 7, n / 2, n - 1, n / 2 + 1, -3};
      const auto found = finder.find(scores, ks);
      const std::vector<TopCut> cuts(found.begin(), found.end());
      for (std::size_t i = 0; i < ks.size(); ++i) {
        const auto expected = sorted_best(scores, ks[i]);
        std::vector<Index> kept;
        for (Index at = 0; at < n; ++at) {
          if (cuts[i].contains(scores[at], at)) kept.push_back(at);
        }
        INFO("n " << n << ", k " << ks[i]);
        REQUIRE(kept == expected);
        REQUIRE(members(scores, cuts[i], ks[i]) == expected);
        REQUIRE(top_k_sorted_by_index(scores, ks[i]) == expected);
      }
    }
  }
}

TEST_CASE("kernels over keys as they lie equal plain loops") {
  Random random(9);
  for (const Index d : {1, 7, 8, 33, 64, 72, 128}) {
    for (const Index n : {0, 1, 3, 4, 21}) {
      Tensor<float> k({n, d});
      for (float& x : k.flat()) x = static_cast<float>(random.normal());
      std::vector<double> q(static_cast<std::size_t>(2 * d));
      for (double& x : q) x = random.normal();
      std::vector<double> dots(static_cast<std::size_t>(2 * (n + 1)), -1.0);
      std::vector<double> squares(static_cast<std::size_t>(n));
      key_dots(q, 2, k.view(), dots.data(), n + 1);
      squared_norms(k.view(), squares);
      const Index first = 5;  // weights of positions 5 to n + 4; every third one is summed up
      std::vector<double> weights(static_cast<std::size_t>(n));
      std::vector<std::int32_t> keys;
      for (Index t = 0; t < n; ++t) weights[t] = random.uniform();
      Tensor<float> v({n + first, d});
      for (float& x : v.flat()) x = static_cast<float>(random.normal());
      for (Index t = 0; t < n; t += 3) keys.push_back(static_cast<std::int32_t>(t + first));
      std::vector<double> some(static_cast<std::size_t>(d), 1.0), all = some;
      const double mass = add_weighted_rows(weights, first, keys, v.view(), some);
      const double total = add_weighted_rows(weights, v.view().range(0, first, n + first), all);
      double mass_expected = 0.0, total_expected = 0.0;
      std::vector<double> some_expected(static_cast<std::size_t>(d), 1.0),
          all_expected = some_expected;
      for (Index t = 0; t < n; ++t) {
        const auto at = static_cast<std::size_t>(t);
        double square = 0.0;
        std::array<double, 2> dot{};
        for (Index c = 0; c < d; ++c) {
          const auto x = static_cast<double>(k(t, c));
          square += x * x;
          for (std::size_t r = 0; r < 2; ++r)
            dot[r] += q[r * static_cast<std::size_t>(d) + static_cast<std::size_t>(c)] * x;
          const double add = weights[at] * static_cast<double>(v(t + first, c));
          all_expected[c] += add;
          if (t % 3 == 0) some_expected[c] += add;
        }
        total_expected += weights[at];
        mass_expected += t % 3 == 0 ? weights[at] : 0.0;
        CHECK(squares[at] == Approx(square));
        CHECK(dots[at] == Approx(dot[0]).margin(1e-12));
        CHECK(dots[at + static_cast<std::size_t>(n + 1)] == Approx(dot[1]).margin(1e-12));
      }
      CHECK(mass == Approx(mass_expected));
      CHECK(total == Approx(total_expected));
      for (std::size_t c = 0; c < some.size(); ++c) {
        CHECK(some[c] == Approx(some_expected[c]).margin(1e-12));
        CHECK(all[c] == Approx(all_expected[c]).margin(1e-12));
      }
    }
  }
}

TEST_CASE("kernels over lists equal plain loops") {
  Random random(11);
  for (const Index n : {0, 1, 7, 8, 9, 31, 200}) {
    for (const auto& scores : rows(random, n)) {
      const std::array<TopCut, 3> cuts = {TopCut{n > 2 ? scores[2] : 0.0, n / 2}, TopCut{kInf, -1},
                                          TopCut{-kInf, -1}};
      std::vector<std::int32_t> keys;
      std::array<Index, 3> expected{};
      for (Index t = 0; t < n; ++t) {
        if (t % 3 == 1) continue;
        keys.push_back(static_cast<std::int32_t>(t + 40));
        for (std::size_t c = 0; c < 3; ++c) expected[c] += cuts[c].contains(scores[t], t) ? 1 : 0;
      }
      CHECK(count_in_cuts(scores, 40, keys, cuts) == expected);
      CHECK(is_ascending(keys));
      for (std::size_t i = 1; i < keys.size(); i += 5) {
        std::vector<std::int32_t> wrong = keys;
        wrong[i] = wrong[i - 1];
        CHECK_FALSE(is_ascending(wrong));
      }
      std::vector<std::int32_t> buckets;
      std::vector<std::int32_t> found(static_cast<std::size_t>(n) + kListSlack);
      std::vector<std::int32_t> places;
      for (Index t = 0; t < n; ++t) {
        buckets.push_back(static_cast<std::int32_t>(random.below(9)));
        if (buckets.back() == 3 || buckets.back() == 7)
          places.push_back(static_cast<std::int32_t>(t));
      }
      found.resize(find_buckets(buckets, std::array<std::int32_t, 2>{7, 3}, found.data()));
      CHECK(found == places);
    }
  }
  CHECK_FALSE(is_ascending(std::array<std::int32_t, 3>{0, 2147483647, -2147483647 - 1}));
}

}  // namespace kvscope::top_cuts_test
