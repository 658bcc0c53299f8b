// The papers' bounds as pure functions: published vectors, counterexamples, and properties on
// random data.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <numeric>

#include "core/attention/page_bounds.hpp"
#include "core/attention/theorem_b1.hpp"
#include "core/base/error.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope {
namespace {

using Catch::Approx;
using test::Random;

/// A row from vectors, by the definitions: unit query, scale 1.
TheoremB1Row row_of(const std::vector<double>& q, const std::vector<std::vector<double>>& keys,
                    Index star) {
  const auto norm = [](const std::vector<double>& x) {
    return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
  };
  std::vector<double> scores;
  double largest = 0.0;
  for (const auto& k : keys) {
    scores.push_back(std::inner_product(q.begin(), q.end(), k.begin(), 0.0));
    largest = std::max(largest, norm(k));
  }
  return theorem_b1_row(scores, star, norm(q), norm(keys[static_cast<std::size_t>(star)]), largest,
                        1.0);
}

TEST_CASE("theorem B.1 as printed: both published counterexamples break it, the repairs hold",
          "[theorem_b1]") {
  SECTION("unequal norms") {
    const TheoremB1Row row = row_of({1, 0}, {{-1, 0}, {-0.001, 0}}, 1);
    REQUIRE(row.n == 1);
    REQUIRE(row.weight == Approx(0.7309).margin(1e-4));
    REQUIRE(row.cos == Approx(-1.0));
    REQUIRE(row.printed == Approx(-0.690).margin(1e-3));
    REQUIRE(row.printed > row.cos);
    REQUIRE(row.jensen <= row.cos + row.slack);
    REQUIRE(row.worst <= row.cos + row.slack);
  }
  SECTION("a squared norm where a norm belongs") {
    const TheoremB1Row row = row_of({1, 0}, {{0.1, 0}, {-0.1, 0}}, 0);
    REQUIRE(row.printed == Approx(4.25).margin(0.01));
    REQUIRE(row.cos == Approx(1.0));
    REQUIRE(row.repaired <= 1.0);
    REQUIRE(row.jensen <= row.cos + row.slack);
    REQUIRE(row.worst <= row.cos + row.slack);
  }
}

TEST_CASE("theorem B.1: how little each form says for n = 4095, N = 10", "[theorem_b1]") {
  // scores built so that k* has the wanted weight among 4095 equal others
  const auto row_with_weight = [](double w) {
    const double n = 4095.0;
    std::vector<double> scores(4096, 0.0);
    scores[7] = std::log(n * w / (1.0 - w));
    return theorem_b1_row(scores, 7, 1.0, 10.0, 10.0, 1.0);
  };
  const TheoremB1Row half = row_with_weight(0.5);
  REQUIRE(half.printed == Approx(-0.9965).margin(1e-4));
  REQUIRE(half.repaired == Approx(-0.931).margin(1e-3));
  REQUIRE((std::log(4095.0) + half.log_odds) / 10.0 - 1.0 == Approx(-0.168).margin(1e-3));
  const TheoremB1Row most = row_with_weight(0.99);
  REQUIRE(most.printed == Approx(-0.977).margin(1e-3));
  REQUIRE(most.repaired == Approx(-0.540).margin(1e-3));
  REQUIRE(most.worst == Approx(0.291).margin(1e-3));
}

TEST_CASE("theorem B.1: random rows never break Jensen, worst case or the exact identity",
          "[theorem_b1]") {
  Random random(11);
  const double longest = GENERATE(0.4, 5.0, 40.0);
  Index printed_violations = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const Index n = 1 + random.below(12);
    std::vector<std::vector<double>> keys;
    for (Index i = 0; i <= n; ++i) {
      std::vector<double> key = {random.normal(), random.normal(), random.normal()};
      const double length = longest * random.uniform();
      const double norm = std::sqrt(std::inner_product(key.begin(), key.end(), key.begin(), 0.0));
      for (double& x : key) x *= length / norm;
      keys.push_back(key);
    }
    std::vector<double> q = {random.normal(), random.normal(), random.normal()};
    const double norm = std::sqrt(std::inner_product(q.begin(), q.end(), q.begin(), 0.0));
    for (double& x : q) x /= norm;
    const Index star = random.below(n + 1);
    const TheoremB1Row row = row_of(q, keys, star);
    REQUIRE(row.jensen <= row.cos + row.slack + 1e-12);
    REQUIRE(row.worst <= row.cos + row.slack + 1e-12);
    if (row.cos >= 0.0) REQUIRE(row.repaired <= row.cos + 1e-12);
    printed_violations += row.printed > row.cos + 1e-9;
    // s* = log(w / (1 - w)) + LSE of the others
    double others = 0.0;
    double s_star = 0.0;
    for (Index i = 0; i <= n; ++i) {
      const auto& key = keys[static_cast<std::size_t>(i)];
      const double s = std::inner_product(q.begin(), q.end(), key.begin(), 0.0);
      if (i == star) {
        s_star = s;
      } else {
        others += std::exp(s);
      }
    }
    REQUIRE(row.log_odds + std::log(others) == Approx(s_star).margin(1e-10));
  }
  if (longest < 1.0) REQUIRE(printed_violations > 0);  // short keys are where the print fails
}

TEST_CASE("theorem B.1: equal norms of at least one half keep the printed form safe",
          "[theorem_b1]") {
  Random random(12);
  for (int trial = 0; trial < 4000; ++trial) {
    const double length = 0.5 + 4.0 * random.uniform();
    std::vector<std::vector<double>> keys;
    for (Index i = 0; i < 6; ++i) {
      const double angle = 6.28 * random.uniform();
      keys.push_back({length * std::cos(angle), length * std::sin(angle)});
    }
    const TheoremB1Row row = row_of({1, 0}, keys, random.below(6));
    REQUIRE(row.printed <= row.cos + 1e-9);
    REQUIRE(row.repaired <= row.cos + 1e-9);
  }
}

TEST_CASE("theorem B.1: weights that round to 1 keep their log-odds", "[theorem_b1]") {
  const std::vector<double> scores = {500.0, 0.0, -3.0};
  const TheoremB1Row row = theorem_b1_row(scores, 0, 1.0, 500.0, 500.0, 1.0);
  REQUIRE(row.weight == 1.0);
  REQUIRE(row.log_odds == Approx(500.0 - std::log(1.0 + std::exp(-3.0))));
  REQUIRE(std::isfinite(row.jensen));
  REQUIRE(row.jensen <= row.cos + row.slack);
  // and weights that round to 0
  const TheoremB1Row weak = theorem_b1_row(scores, 2, 1.0, 3.0, 500.0, 1.0);
  REQUIRE(std::isfinite(weak.printed));
  REQUIRE(weak.cos == Approx(-1.0));
}

TEST_CASE("theorem B.1: zero vectors and lonely rows say nothing, and say so", "[theorem_b1]") {
  const TheoremB1Row zero = theorem_b1_row(std::vector<double>{0.0, 0.0}, 1, 0.0, 0.0, 0.0, 1.0);
  REQUIRE(zero.cos == 0.0);
  REQUIRE(zero.printed == -1.0);
  REQUIRE(zero.jensen == -1.0);
  REQUIRE(zero.worst == -1.0);
  const TheoremB1Row lonely = theorem_b1_row(std::vector<double>{2.0}, 0, 1.0, 2.0, 2.0, 1.0);
  REQUIRE(lonely.n == 0);
  REQUIRE(std::isnan(lonely.cos));
}

TEST_CASE("main-text theorem: both bounds hold, the exact one is the tighter", "[theorem_b1]") {
  Random random(13);
  const auto unit = [&] {
    std::vector<double> x = {random.normal(), random.normal(), random.normal()};
    const double norm = std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
    for (double& value : x) value /= norm;
    return x;
  };
  const auto dot = [](const auto& a, const auto& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  for (int trial = 0; trial < 20000; ++trial) {
    const auto mean = unit();
    const auto key = unit();
    const auto query = trial % 7 == 0 ? mean : unit();
    const MainTextBound bound = main_text_bound(dot(mean, key), dot(key, query));
    REQUIRE(dot(mean, query) <= bound.exact + bound.slack);
    REQUIRE(bound.exact <= bound.relaxed + bound.slack);
  }
}

// Figure 5 of the Quest paper; it prints 32 for page B because of a sign slip, the sum is 35.
const std::vector<float> kQuestQuery = {-1, 1, 3, 0, 1, 0, -3, 2};
const std::vector<std::vector<float>> kPageA = {{4, -3, 4, -1, 3, -4, 1, 3},
                                                {-3, -2, 0, 3, 0, -4, -2, -3},
                                                {-1, 3, -1, 3, 1, -4, -4, -3},
                                                {-2, -4, 0, 3, -1, 2, -3, -4}};
const std::vector<std::vector<float>> kPageB = {{-4, 0, 3, 3, 3, 3, -2, 3},
                                                {2, 2, -3, -3, -3, 3, -2, -2},
                                                {-3, -3, 0, 2, 0, 2, 0, 4},
                                                {-2, -1, -1, -3, 2, 2, -3, -1}};

Tensor<float> keys_of(const std::vector<std::vector<float>>& rows) {
  Tensor<float> k({static_cast<Index>(rows.size()), static_cast<Index>(rows[0].size())});
  for (std::size_t t = 0; t < rows.size(); ++t) {
    std::copy(rows[t].begin(), rows[t].end(), k.view().row(static_cast<Index>(t)).begin());
  }
  return k;
}

TEST_CASE("quest: the paper's example, with its sum corrected", "[quest]") {
  auto rows = kPageA;
  rows.insert(rows.end(), kPageB.begin(), kPageB.end());
  const Tensor<float> k = keys_of(rows);
  const PageBoxes boxes(k.view(), 4);
  REQUIRE(boxes.bound(kQuestQuery, 0, {0, 8}).value == 39.0);
  REQUIRE(boxes.bound(kQuestQuery, 1, {0, 8}).value == 35.0);
  std::vector<double> dots;
  for (const auto& key : rows) {
    dots.push_back(std::inner_product(key.begin(), key.end(), kQuestQuery.begin(), 0.0));
  }
  REQUIRE(dots == std::vector<double>{11, 1, 8, -2, 28, -10, 8, 7});
  // page A is ranked first although the best key is in page B
  REQUIRE(quest_select_pages(QuestSemantics::kernel, std::vector<double>{39, 35, 0}, 8, 4, 12) ==
          std::vector<Index>{0, 2});
}

TEST_CASE("quest: the bound holds on random pages, is exact on single keys, grows with them",
          "[quest]") {
  Random random(21);
  for (int trial = 0; trial < 300; ++trial) {
    const Index n = 1 + random.below(40);
    const Index d = 1 + random.below(9);
    Tensor<float> k({n, d});
    for (float& x : k.flat()) x = static_cast<float>(3.0 * random.normal());
    std::vector<float> q(static_cast<std::size_t>(d));
    for (float& x : q) x = random.below(4) == 0 ? 0.0f : static_cast<float>(random.normal());
    const auto dot = [&](Index t) {
      double sum = 0.0;
      for (Index c = 0; c < d; ++c) {
        sum += static_cast<double>(q[static_cast<std::size_t>(c)]) * static_cast<double>(k(t, c));
      }
      return sum;
    };
    const PageBoxes boxes(k.view(), 8);
    const TokenRange visible{random.below(n), n};
    const TokenRange pages = boxes.pages_of(visible);
    Index covered = 0;
    for (Index page = pages.begin; page < pages.end; ++page) {
      const TokenRange keys = boxes.keys_of(page, visible);
      covered += keys.size();
      const PageBoxes::Bound bound = boxes.bound(q, page, visible);
      for (Index t = keys.begin; t < keys.end; ++t) REQUIRE(dot(t) <= bound.value + bound.slack);
    }
    REQUIRE(covered == visible.size());
    const PageBoxes single(k.view(), 1);
    double previous = -1e300;
    for (Index t = 0; t < n; ++t) {
      REQUIRE(single.bound(q, t, {0, n}).value == Approx(dot(t)).margin(1e-9));
      if (t >= 8) continue;
      const double grown = boxes.bound(q, 0, {0, t + 1}).value;
      REQUIRE(grown >= previous);
      previous = grown;
    }
  }
}

TEST_CASE("quest: page budgets of both programs", "[quest]") {
  using enum QuestSemantics;
  // "budget 32" of the passkey table is 3 pages = 48 tokens in the evaluation
  REQUIRE(quest_page_budget(eval, 32, 16, 10000, 625) == 3);
  REQUIRE(quest_page_budget(kernel, 32, 16, 10000, 625) == 2);
  // the published quotient would be 6 and drop a page although the budget covers the context
  REQUIRE(quest_page_budget(eval, 1024, 16, 100, 7) == 7);
  REQUIRE(quest_page_budget(kernel, 100, 16, 100, 7) == 7);
  REQUIRE(quest_page_budget(eval, 99, 16, 100, 7) == 6);
  REQUIRE(quest_page_budget(eval, 1024, 16, 10, 1) == 1);
  REQUIRE(quest_page_budget(kernel, 8, 16, 10000, 625) == 1);
  REQUIRE(quest_page_budget(kernel, 1 << 20, 16, 10000, 625) == 625);

  const std::vector<double> bounds = {5, 9, 9, 1, 0};
  REQUIRE(quest_select_pages(eval, bounds, 48, 16, 80) == std::vector<Index>{0, 1, 2});
  REQUIRE(quest_select_pages(kernel, bounds, 32, 16, 80) ==
          std::vector<Index>{1, 4});  // tie: lower
  REQUIRE(quest_select_pages(kernel, bounds, 1, 16, 80) == std::vector<Index>{4});
  REQUIRE(quest_select_pages(kernel, bounds, 80, 16, 80) == std::vector<Index>{0, 1, 2, 3, 4});
  REQUIRE(quest_select_pages(eval, {}, 80, 16, 0).empty());
  Tensor<float> k({4, 2});
  REQUIRE_THROWS_AS(PageBoxes(k.view(), 0), ConfigError);
}

}  // namespace
}  // namespace kvscope
