// Every gate: a doubt is planted and found, and its absence where there is none.
#include "analysis/simulate/gates.hpp"

#include <nlohmann/json.hpp>

#include "core/base/progress.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::gates_test {

using Vector = std::vector<double>;

/// Rows of one cell from right answers by prompt.
struct Planted {
  std::vector<JudgedRow> rows;
  std::vector<Vector> scores;

  void add(const std::string& selector, double budget, int n_right, int n, int first_right = 0) {
    Vector own(static_cast<std::size_t>(n), 0.0);
    for (int i = 0; i < n_right; ++i) own[(first_right + i) % n] = 1.0;
    rows.push_back({"cell", selector, std::isnan(budget) ? "none" : "tokens", budget,
                    static_cast<double>(n_right) / n});
    scores.push_back(own);
  }
  std::vector<Doubt> doubts() const {
    return find_doubts(
        rows, [&](std::size_t a, std::size_t b) { return paired_test(scores[a], scores[b], {1}); });
  }
  std::vector<std::string> words() const { return doubt_words(doubts(), rows.size()); }
};

const double kNone = std::nan("");

TEST_CASE("a clear result raises no doubt") {
  Planted planted;
  planted.add("full", kNone, 39, 40);
  planted.add("good", 128, 36, 40);
  planted.add("bad", 128, 10, 40);
  planted.add("good", 256, 38, 40);
  planted.add("bad", 256, 20, 40);
  CHECK(planted.doubts().empty());
  CHECK(planted.words() == std::vector<std::string>(5));
}

TEST_CASE("gate: dense and all methods at 100 %") {
  Planted planted;
  planted.add("full", kNone, 12, 12);
  planted.add("good", 128, 12, 12);
  planted.add("other", 128, 12, 12);
  const auto doubts = planted.doubts();
  REQUIRE(doubts.size() == 1);
  CHECK(doubts[0].gate == kSaturated);
  CHECK(doubts[0].rows == std::vector<std::size_t>{0, 1, 2});
  CHECK_HAS(doubts[0].sentence, "saturated");
  planted.add("third", 128, 2, 12);
  CHECK(planted.words()[1].find("saturated") == std::string::npos);
}

TEST_CASE("gate: a method that attended to every key") {
  Planted planted;
  planted.add("full", kNone, 30, 40);
  planted.add("snapkv", 128, 30, 40);
  planted.add("quest", 128, 10, 40);
  planted.rows[1].kv_reduction = 0.0;
  planted.rows[2].kv_reduction = 0.5;
  const auto doubts = planted.doubts();
  REQUIRE(doubts.size() == 1);
  CHECK(doubts[0].gate == kNothingChosen);
  CHECK(doubts[0].rows == std::vector<std::size_t>{1});
  CHECK_HAS(doubts[0].sentence, "snapkv tokens=128 attended to every key");
}

TEST_CASE("gate: the dense model cannot do the task") {
  Planted planted;
  planted.add("full", kNone, 1, 40);
  planted.add("good", 128, 1, 40);
  const auto doubts = planted.doubts();
  REQUIRE(doubts.size() == 1);
  CHECK(doubts[0].gate == kDenseCannot);
  CHECK(doubts[0].rows.size() == 2);
}

TEST_CASE("gate: sparse above dense, beyond chance only") {
  Planted planted;
  planted.add("full", kNone, 25, 40);
  planted.add("wonder", 128, 40, 40);
  planted.add("lucky", 256, 27, 40);
  const auto words = planted.words();
  CHECK(words[1] == kSparseAboveDense);
  CHECK(words[2].empty());  // two prompts are chance
}

TEST_CASE("doubts say where there was no test, and no more of a p than resamples can") {
  const std::vector<JudgedRow> rows = {{"cell", "full", "none", kNone, 0.4},
                                       {"cell", "good", "tokens", 64, 0.6},
                                       {"cell", "bad", "tokens", 64, 0.5},
                                       {"cell", "good", "tokens", 128, 0.5}};
  const auto with = [&](double p) {
    std::string all;
    for (const Doubt& doubt : find_doubts(rows, [&](std::size_t a, std::size_t b) {
           return PairedTest{.difference = rows[a].mean - rows[b].mean, .p = p};
         })) {
      all += doubt.sentence + "\n";
    }
    return all;
  };
  CHECK_HAS(with(kNone), "bad tokens=64 (50.0 %, not tested)", "only 50.0 % (not tested)");
  CHECK_THAT(with(kNone), !has("p = "));
  CHECK_HAS(with(0.0), "beyond chance (p < 0.001)");
}

TEST_CASE("gate: more budget, worse") {
  Planted planted;
  planted.add("full", kNone, 40, 40);
  planted.add("odd", 128, 39, 40);
  planted.add("odd", 256, 20, 40);
  planted.add("even", 128, 5, 40);
  planted.add("even", 256, 6, 40);
  const auto doubts = planted.doubts();
  REQUIRE(doubts.size() == 1);
  CHECK(doubts[0].gate == kMoreBudgetWorse);
  CHECK(doubts[0].rows == std::vector<std::size_t>{1, 2});
  CHECK_HAS(doubts[0].sentence, "beyond chance");
  planted.rows[1].mean = 21.0 / 40.0;
  std::fill(planted.scores[1].begin() + 21, planted.scores[1].end(), 0.0);
  CHECK_HAS(planted.doubts()[0].sentence, "which chance does too");
}

TEST_CASE("gate: too few trials to tell the best from the others") {
  Planted planted;
  planted.add("full", kNone, 5, 5);
  planted.add("first", 128, 5, 5);
  planted.add("second", 128, 4, 5);
  planted.add("last", 128, 0, 5, 0);
  const auto doubts = planted.doubts();
  REQUIRE(doubts.size() == 1);
  CHECK(doubts[0].gate == kTooFewTrials);
  CHECK(doubts[0].rows == std::vector<std::size_t>{1, 2, 3});  // even 5 of 0: p = 2 / 32
  CHECK_HAS(doubts[0].sentence, "5 trials do not tell the best, first tokens=128");
  // other budgets are other rounds, and the oracle is ranked in none
  Planted apart;
  apart.add("full", kNone, 5, 5);
  apart.add("first", 128, 5, 5);
  apart.add("second", 256, 4, 5);
  apart.add("oracle-topk", 128, 4, 5);
  CHECK(apart.doubts().empty());
}

TEST_CASE("cells are judged apart, and doubts name their rows in JSON") {
  Planted planted;
  planted.add("full", kNone, 3, 3);
  planted.add("good", 128, 3, 3);
  planted.add("full", kNone, 3, 3);
  planted.add("good", 128, 0, 3);
  planted.rows[2].cell = planted.rows[3].cell = "another";
  const auto json = doubts_json(planted.doubts());
  REQUIRE(json.size() == 1);
  CHECK(json[0].at("gate") == "saturated");
  CHECK(json[0].at("cell") == "cell");
  CHECK(json[0].at("rows") == nlohmann::ordered_json({0, 1}));
}

}  // namespace kvscope::test::gates_test
