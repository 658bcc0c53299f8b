// Row kernels, score rows, top-k and the layer map against loops that are too simple to be wrong.
#include "core/attention/monotone_map.hpp"
#include "core/attention/score_rows.hpp"
#include "core/attention/topk.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::kernels_test {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> random_row(Random& random, Index n, double scale = 1.0) {
  std::vector<double> x(static_cast<std::size_t>(n));
  for (double& value : x) value = scale * random.normal();
  return x;
}

TEST_CASE("row kernels equal plain loops at every length") {
  Random random(1);
  for (Index n = 0; n <= 70; ++n) {
    const auto x = random_row(random, n, 20.0);
    const auto y = random_row(random, n);
    double largest = -kInf, sum = 0, dot = 0, l1 = 0, e_sum = 0, e_weighted = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest, x[i]);
      sum += x[i];
      dot += x[i] * y[i];
      l1 += std::abs(x[i] - y[i]);
    }
    const double shift = n > 0 ? largest : 0.0;
    for (double value : x) {
      e_sum += std::exp(value - shift);
      e_weighted += std::exp(value - shift) * (value - shift);
    }
    REQUIRE(max_of(x) == largest);
    REQUIRE(sum_of(x) == Approx(sum).margin(1e-10));
    REQUIRE(dot_of(x, y) == Approx(dot).margin(1e-10));
    REQUIRE(l1_distance(x, y) == Approx(l1).margin(1e-10));
    REQUIRE(exp_sums(x, shift).sum == Approx(e_sum).margin(1e-12));
    REQUIRE(exp_sums(x, shift).weighted == Approx(e_weighted).margin(1e-10));
    std::vector<double> out(x.size());
    REQUIRE(exp_row(x, shift, out).sum == exp_sums(x, shift).sum);
    for (std::size_t i = 0; i < x.size(); ++i)
      REQUIRE(out[i] == Approx(std::exp(x[i] - shift)).epsilon(1e-13));
    log_row(out, out);
    for (std::size_t i = 0; i < x.size(); ++i)
      REQUIRE(out[i] == Approx(x[i] - shift).margin(1e-12));
    std::vector<double> accumulated = y;
    add_scaled(x, 0.5, accumulated);
    for (std::size_t i = 0; i < x.size(); ++i)
      REQUIRE(accumulated[i] == Approx(y[i] + 0.5 * x[i]).margin(1e-12));
  }
}

TEST_CASE("exponentials and logarithms at the ends of the range") {
  std::vector<double> x = {0.0, -kInf, -1e6, -700.0, -745.0, 1.0};
  std::vector<double> out(x.size());
  const ExpSums sums = exp_row(x, 0.0, out);
  REQUIRE(out[1] == 0.0);
  REQUIRE(out[2] == 0.0);
  REQUIRE(out[3] == Approx(std::exp(-700.0)));
  REQUIRE(std::isfinite(sums.weighted));
  std::vector<double> p = {0.0, 1.0, 1e-300};
  log_row(p, p);
  REQUIRE(p[0] == -kInf);
  REQUIRE(p[1] == 0.0);
  REQUIRE(p[2] == Approx(-690.7755278982137));
}

TEST_CASE("score rows equal plain dot products for every range") {
  Random random(2);
  for (Index d : {1, 3, 8, 65}) {
    const Index n = 53;
    Tensor<float> k({n, d});
    for (float& x : k.flat()) x = static_cast<float>(random.normal());
    std::copy(k.view().row(5).begin(), k.view().row(5).end(), k.view().row(40).begin());
    const KeyTable keys(k.view());
    ScoreRows scores;
    for (const TokenRange range : {TokenRange{0, n}, {17, 18}, {15, 33}, {50, 53}, {4, 4}}) {
      for (Index n_rows : {1, 4, 7}) {
        const auto q = random_row(random, n_rows * d);
        scores.compute(q, n_rows, keys, range);
        for (Index r = 0; r < n_rows; ++r) {
          const auto row = scores.row(r, range);
          for (Index t = range.begin; t < range.end; ++t) {
            double dot = 0.0;
            for (Index c = 0; c < d; ++c) dot += q[r * d + c] * static_cast<double>(k(t, c));
            REQUIRE(row[t - range.begin] == Approx(dot).margin(1e-10));
          }
        }
        if (range == TokenRange{0, n}) REQUIRE(scores.row(0, range)[5] == scores.row(0, range)[40]);
      }
    }
  }
}

TEST_CASE("softmax and log-sum-exp survive large scores") {
  std::vector<double> x = {1000.0, 1000.0, -1000.0};
  REQUIRE(log_sum_exp(x) == Approx(1000.0 + std::log(2.0)));
  REQUIRE(softmax_in_place(x) == Approx(1000.0 + std::log(2.0)));
  REQUIRE(x[0] == Approx(0.5));
  REQUIRE(x[2] == 0.0);
  REQUIRE(log_sum_exp({}) == -kInf);
}

TEST_CASE("top-k equals a full stable sort") {
  Random random(3);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> scores(static_cast<std::size_t>(1 + random.below(60)));
    for (double& s : scores) s = static_cast<double>(random.below(6));
    std::vector<Index> order(scores.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Index>(i);
    std::ranges::stable_sort(order, [&](Index a, Index b) { return scores[a] > scores[b]; });
    const Index k = random.below(70);
    order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
    REQUIRE(top_k(scores, k) == order);
    if (k > 0) REQUIRE(rank_of(scores, order.back()) == static_cast<Index>(order.size()) - 1);
  }
}

/// Every non-decreasing map, by recursion.
void best_by_force(const Tensor<double>& cost, Index column, Index lowest, double so_far,
                   double& best) {
  if (column == cost.dim(1)) {
    best = std::min(best, so_far);
    return;
  }
  for (Index i = lowest; i < cost.dim(0); ++i)
    best_by_force(cost, column + 1, i, so_far + cost(i, column), best);
}

TEST_CASE("monotone map equals brute force on random instances") {
  Random random(4);
  for (int trial = 0; trial < 600; ++trial) {
    Tensor<double> cost({1 + random.below(5), 1 + random.below(6)});
    const bool ties = trial % 3 == 0;
    for (double& x : cost.flat())
      x = ties ? static_cast<double>(random.below(3)) : random.uniform();
    const LayerAssignment map = monotone_layer_map(cost.view());
    double best = kInf;
    best_by_force(cost, 0, 0, 0.0, best);
    REQUIRE(map.cost == Approx(best).margin(1e-12));
    double sum = 0.0;
    for (std::size_t j = 0; j < map.draft_of.size(); ++j) {
      if (j > 0) REQUIRE(map.draft_of[j] >= map.draft_of[j - 1]);
      sum += cost(map.draft_of[j], static_cast<Index>(j));
    }
    REQUIRE(sum == Approx(map.cost).margin(1e-12));

    // never better than the free choice; equal to it when that is monotone; no constant map beats
    // it
    const LayerAssignment free = unconstrained_layer_map(cost.view());
    REQUIRE(free.cost <= map.cost + 1e-12);
    if (std::ranges::is_sorted(free.draft_of)) REQUIRE(free.cost == Approx(map.cost).margin(1e-12));
    for (Index i = 0; i < cost.dim(0); ++i) {
      double constant = 0.0;
      for (Index j = 0; j < cost.dim(1); ++j) constant += cost(i, j);
      REQUIRE(map.cost <= constant + 1e-12);
    }
  }
}

TEST_CASE("monotone map: infinite costs are avoided, NaN and empty matrices refused") {
  Tensor<double> cost({2, 2});
  cost(Index{0}, Index{0}) = kInf;
  cost(Index{1}, Index{1}) = 3.0;
  cost(Index{0}, Index{1}) = 1.0;
  const LayerAssignment map = monotone_layer_map(cost.view());
  REQUIRE(map.draft_of == std::vector<Index>{1, 1});
  REQUIRE(map.cost == 3.0);
  cost(Index{0}, Index{1}) = std::nan("");
  REQUIRE_THROWS_AS(monotone_layer_map(cost.view()), ConfigError);
  REQUIRE_THROWS_AS(monotone_layer_map(Tensor<double>(Shape{0, 2}).view()), ShapeError);
}

}  // namespace kvscope::kernels_test
