// QuoKA's query selection and key scores: the golden vector of the specification, and what must not
// change the result.
#include "core/attention/quoka_scores.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "core/attention/topk.hpp"
#include "core/base/error.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope {
namespace {

using Catch::Approx;
using test::Random;

Tensor<float> rows_of(const std::vector<std::vector<float>>& rows) {
  Tensor<float> x({static_cast<Index>(rows.size()), static_cast<Index>(rows[0].size())});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy(rows[i].begin(), rows[i].end(), x.view().row(static_cast<Index>(i)).begin());
  }
  return x;
}

struct Golden {
  Tensor<float> q0 = rows_of({{3, -3}, {-2, 3}, {0, 1}, {1, -3}});
  Tensor<float> q1 = rows_of({{-1, 1}, {1, -2}, {0, 1}, {-2, -1}});
  Tensor<float> k = rows_of({{1, -2}, {-2, -1}, {1, -1}, {-3, -3}, {0, -3}});

  QuokaQueries queries(QuokaScoring scoring) const {
    const std::vector<TensorView<const float>> q = {q0.view(), q1.view()};
    return quoka_select_queries(q, scoring);
  }
  std::vector<double> scores(QuokaScoring scoring) const {
    ScoreRows scratch;
    return quoka_key_scores(queries(scoring), KeyTable::unit(k.view(), scoring.eps), {0, 5}, {},
                            scratch);
  }
};

void require_close(std::span<const double> found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    REQUIRE(found[i] == Approx(expected[i]).margin(1.5e-6));
  }
}

TEST_CASE("quoka golden vector: cosines, choices, averages, S-hat and kept keys", "[quoka]") {
  const Golden golden;
  QuokaScoring scoring;
  scoring.n_queries = 2;
  const QuokaQueries queries = golden.queries(scoring);
  require_close(queries.cosines[0], {1.0, -0.980581, -0.707107, 0.894427});
  require_close(queries.cosines[1], {0.316228, 0.0, -0.447214, 1.0});
  REQUIRE(queries.picks[0] == std::vector<Index>{1, 2});
  REQUIRE(queries.picks[1] == std::vector<Index>{2, 1});
  require_close(queries.mean_unit.flat(), {-0.277350, 0.916025, 0.223607, 0.052786});
  REQUIRE_FALSE(queries.has_zero_mean);
  const auto scores = golden.scores(scoring);
  require_close(scores, {0.052786, -0.161589, 0.120788, -0.195440, -0.052786});
  REQUIRE(top_k_sorted_by_index(scores, 2) == std::vector<Index>{0, 2});
}

TEST_CASE("quoka golden vector: pairing by position, or shared tokens, keeps other keys",
          "[quoka]") {
  const Golden golden;
  for (QuokaPairing pairing : {QuokaPairing::position_sorted, QuokaPairing::shared_tokens}) {
    QuokaScoring scoring;
    scoring.n_queries = 2;
    scoring.pairing = pairing;
    const auto scores = golden.scores(scoring);
    require_close(scores, {0.003861, 0.062017, -0.015949, 0.060056, 0.031188});
    REQUIRE(top_k_sorted_by_index(scores, 2) == std::vector<Index>{1, 3});
  }
}

TEST_CASE("quoka: as many queries as tokens means all of them, in order", "[quoka]") {
  const Golden golden;
  QuokaScoring scoring;
  scoring.n_queries = 4;
  const QuokaQueries queries = golden.queries(scoring);
  REQUIRE(queries.picks[0] == std::vector<Index>{0, 1, 2, 3});
  REQUIRE(queries.picks[1] == std::vector<Index>{0, 1, 2, 3});
}

TEST_CASE("quoka: averaging cosines over the heads equals averaging unit queries", "[quoka]") {
  Random random(5);
  const Index d = 6;
  std::vector<Tensor<float>> heads;
  for (int h = 0; h < 4; ++h) {
    Tensor<float> q({12, d});
    for (float& x : q.flat()) x = static_cast<float>(random.normal());
    heads.push_back(std::move(q));
  }
  Tensor<float> k({33, d});
  for (float& x : k.flat()) x = static_cast<float>(random.normal());
  std::vector<TensorView<const float>> views;
  for (const auto& head : heads) views.push_back(head.view());
  QuokaScoring scoring;
  scoring.n_queries = 5;
  const QuokaQueries queries = quoka_select_queries(views, scoring);
  ScoreRows scratch;
  const auto scores =
      quoka_key_scores(queries, KeyTable::unit(k.view(), 1e-12), {0, 33}, {}, scratch);
  for (Index t = 0; t < 33; ++t) {
    double best = -2.0;
    for (std::size_t slot = 0; slot < 5; ++slot) {
      double sum = 0.0;
      for (std::size_t h = 0; h < 4; ++h) {
        const auto q = views[h].row(queries.picks[h][slot]);
        double dot = 0.0;
        for (Index c = 0; c < d; ++c) {
          dot += static_cast<double>(q[static_cast<std::size_t>(c)]) * static_cast<double>(k(t, c));
        }
        sum += dot / (norm_of(q) * norm_of(k.view().row(t)));
      }
      best = std::max(best, sum / 4.0);
    }
    REQUIRE(scores[static_cast<std::size_t>(t)] == Approx(best).margin(1e-12));
  }
}

TEST_CASE("quoka: the length of a key does not matter; equal keys score equal", "[quoka]") {
  Golden golden;
  QuokaScoring scoring;
  scoring.n_queries = 2;
  const auto before = golden.scores(scoring);
  for (float& x : golden.k.view().row(3)) x *= 64.0f;  // a power of two: exact
  require_close(golden.scores(scoring), before);
  std::copy(golden.k.view().row(0).begin(), golden.k.view().row(0).end(),
            golden.k.view().row(4).begin());
  const auto tied = golden.scores(scoring);
  REQUIRE(tied[0] == tied[4]);
  REQUIRE(top_k(tied, 1)[0] != 4);
}

TEST_CASE("quoka: the mean of raw queries weighs long ones, the mean of unit ones does not",
          "[quoka]") {
  const Tensor<float> q = rows_of({{10, 0}, {0, 1}, {0, 1}});
  const auto raw = quoka_mean_query(q.view(), QuokaMean::raw, 1e-12);
  const auto unit = quoka_mean_query(q.view(), QuokaMean::unit, 1e-12);
  require_close(raw, {10.0 / 3.0, 2.0 / 3.0});
  require_close(unit, {1.0 / 3.0, 2.0 / 3.0});
  REQUIRE(quoka_pick(quoka_cosines(q.view(), raw, 1e-12), 1) == std::vector<Index>{1});
  REQUIRE(quoka_pick(quoka_cosines(q.view(), unit, 1e-12), 1) == std::vector<Index>{0});
}

TEST_CASE("quoka: opposite queries cancel: cosines are 0 and the first tokens are taken",
          "[quoka]") {
  const Tensor<float> q = rows_of({{1, 0}, {-1, 0}, {0, 2}, {0, -2}});
  const std::vector<TensorView<const float>> views = {q.view()};
  QuokaScoring scoring;
  scoring.n_queries = 2;
  const QuokaQueries queries = quoka_select_queries(views, scoring);
  REQUIRE(queries.has_zero_mean);
  REQUIRE(queries.picks[0] == std::vector<Index>{0, 1});
  for (double c : queries.cosines[0]) REQUIRE(c == 0.0);
}

TEST_CASE("quoka: masked slots score no later keys; a key without a slot is no candidate",
          "[quoka]") {
  const Golden golden;
  QuokaScoring scoring;
  scoring.n_queries = 2;
  ScoreRows scratch;
  const QuokaQueries queries = golden.queries(scoring);
  const KeyTable keys = KeyTable::unit(golden.k.view(), 1e-12);
  const std::vector<Index> limits = {1, 3};
  const auto masked = quoka_key_scores(queries, keys, {0, 5}, limits, scratch);
  const auto all = golden.scores(scoring);
  REQUIRE(masked[0] == all[0]);
  REQUIRE(masked[2] <= all[2]);
  REQUIRE(std::isinf(masked[4]));
  REQUIRE(top_k_sorted_by_index(masked, 5) == std::vector<Index>{0, 1, 2, 3});
}

TEST_CASE("quoka: no heads or no queries to pick is a configuration error", "[quoka]") {
  QuokaScoring scoring;
  REQUIRE_THROWS_AS(quoka_select_queries({}, scoring), ConfigError);
  const Golden golden;
  scoring.n_queries = 0;
  REQUIRE_THROWS_AS(golden.queries(scoring), ConfigError);
}

}  // namespace
}  // namespace kvscope
