// Paired differences: what is paired with what, intervals whose ends are known, and the share of
// wrong verdicts over worlds in which the truth is known.
#include "analysis/papers/paired.hpp"

#include <random>

#include "analysis/base/read_table.hpp"
#include "analysis/papers/verdict.hpp"
#include "analysis/simulate/row_units.hpp"
#include "core/trace/result.hpp"
#include "tests/support/test.hpp"

namespace kvscope::papers::paired_test {

using Rows = std::vector<std::vector<double>>;

/// A table with the units of its rows, as the run "run".
struct Simulated {
  Simulated(const std::string& csv, const Rows& units) {
    table_to_result(table_from_csv(csv, "run.csv"), ResultInfo{.kind = "simulate-ruler"}, result,
                    [&](ResultWriter& output) { write_row_units(output, units, "score"); });
  }
  FindRun find() {
    return [this](const std::string& run) {
      return run == "run" ? RunResult{&result, ""} : RunResult{nullptr, run + " failed"};
    };
  }
  MemoryResult result{"run.h5"};
};

Value accuracy(std::string key, std::string where) {
  return {.key = std::move(key),
          .label = "L",
          .run = "run",
          .column = "accuracy",
          .where = std::move(where),
          .unit = Unit::percent,
          .spread = Spread::wilson};
}

Item two(std::string left, std::string right, std::vector<Check> checks) {
  Item item;
  item.id = "made-up";
  item.values = {accuracy("a", std::move(left)), accuracy("b", std::move(right))};
  item.checks = std::move(checks);
  return item;
}

TEST_CASE("Tango's interval: no difference seen, and its symmetry") {
  for (const double n : {1.0, 7.0, 40.0}) {
    Differences none{Pairing::prompt, std::vector<double>(static_cast<std::size_t>(n), 0.0)};
    const Interval interval = interval_of(none, 0.95);
    const double z2 = 1.959963984540054 * 1.959963984540054;
    CHECK(interval.high == Approx(z2 / (n + z2)));
    CHECK(interval.low == Approx(-interval.high));
  }
  const Differences some{Pairing::prompt, {1, 1, 1, 0, 0, 0, 0, 0, -1, 0}};
  Differences other = some;
  for (double& d : other.of) d = -d;
  CHECK(interval_of(some, 0.95).low == Approx(-interval_of(other, 0.95).high));
  CHECK(interval_of(some, 0.95).low < 0.2);
  CHECK(interval_of(some, 0.95).high > 0.2);
  CHECK(interval_of(some, 0.99).low < interval_of(some, 0.95).low);
  CHECK(p_of(some) == Approx(0.625));  // one of four discordant pairs: 2 * 5 / 16
}

TEST_CASE("Student's interval of five differences") {
  const Differences five{Pairing::head, {1, 2, 3, 4, 5}};
  const Interval interval = interval_of(five, 0.95);
  CHECK(mean(five.of) == Approx(3.0));
  CHECK(interval.low == Approx(3.0 - 2.776445105 * std::sqrt(2.5) / std::sqrt(5.0)));
  CHECK(interval.high == Approx(6.0 - interval.low));
  CHECK(p_of(five) == Approx(0.0132356).epsilon(1e-4));
}

TEST_CASE("units that show a difference four times of five") {
  CHECK(units_needed(0.5, 1.0) == 32.0);  // (1.96 + 0.8416)^2 / 0.25 = 31.4
  CHECK(power(0.5, 1.0, 32.0) == Approx(0.80).margin(0.01));
  CHECK(power(0.0, 1.0, 100.0) == Approx(0.025).margin(1e-3));
}

TEST_CASE("prompts are paired within their cell, budgets of one side averaged") {
  Simulated run(
      "selector,budget,kind,length,accuracy\n"
      "x,64,k,100,0.5\nx,128,k,100,1\ny,64,k,100,0.5\n"
      "x,64,k,200,0\nx,128,k,200,0\ny,64,k,200,1\n",
      {{1, 0}, {1, 1}, {0, 1}, {0}, {0}, {1}});
  const Item item = two("selector=x", "selector=y", {{Role::form, "a", Op::above, "b"}});
  CHECK(pairing_of(item, item.checks[0]) == Pairing::prompt);
  const auto differences = differences_of(item, item.checks[0], run.find());
  REQUIRE(differences);
  CHECK(differences->of == std::vector<double>{1.0, -0.5, -1.0});
  Item elsewhere = item;
  elsewhere.values[1].run = "another";
  CHECK(pairing_of(elsewhere, elsewhere.checks[0]) == Pairing::none);
  const Check needs = {Role::needs, "a", Op::above, "b"};
  CHECK(pairing_of(item, needs) == Pairing::none);
}

TEST_CASE("heads are paired by layer and head, where rows of layers are asked for") {
  Simulated run(
      "selector,layer,q_head,recall\n"
      "x,2,,0.5\nx,2,0,0.4\nx,2,1,0.6\ny,2,,0.3\ny,2,0,0.3\ny,2,1,0.3\nx,3,0,0.9\ny,3,0,0.1\n",
      {});
  Item item = two("selector=x;q_head=", "selector=y;q_head=", {{Role::form, "a", Op::above, "b"}});
  for (Value& value : item.values) {
    value.column = "recall";
    value.spread = Spread::recorded;
  }
  CHECK(pairing_of(item, item.checks[0]) == Pairing::head);
  const auto differences = differences_of(item, item.checks[0], run.find());
  REQUIRE(differences);
  REQUIRE(differences->of.size() == 3);
  CHECK(differences->of[0] == Approx(0.1));
  CHECK(differences->of[2] == Approx(0.8));
}

/// The item "a OP b" of two totals over four layers, or of a and a number.
Item of_layers(Check check) {
  Item item;
  item.id = "made-up";
  for (const char* key : {"a", "b"}) {
    item.values.push_back({.key = key,
                           .label = key,
                           .run = "run",
                           .column = std::string("totals.") + key,
                           .spread = Spread::rows});
  }
  item.checks = {std::move(check)};
  return item;
}

TEST_CASE("totals are compared layer by layer, and layers that contradict are named") {
  Simulated run("layer,a,b\n0,0.5,0.1\n1,0.6,0.2\n2,0.7,0.2\n10,0.1,0.3\n", {});
  auto summary = run.result.summary();
  summary["totals"] = {{"a", 0.475}, {"b", 0.2}};
  run.result.finish(summary);
  const auto judged = [&](const Check& check) {
    const Item item = of_layers(check);
    CHECK(pairing_of(item, item.checks[0]) == Pairing::layer);
    return judge(item, measure(item, run.find()), run.find());
  };
  const Judgement open = judged({Role::form, "a", Op::above, "b"});
  CHECK(open.verdict == Verdict::not_decided);  // .4, .4, .5, -.2 have a mean that may be 0
  CHECK_HAS(open.reason, "A (0.475, 0.1 to 0.7) cannot be told apart from b",
            "over 4 layers of one text; the claim fails in layer 10");
  const Judgement number = judged({Role::form, "a", Op::above, "-0.2"});
  CHECK(number.verdict == Verdict::holds);
  CHECK(number.checks[0].difference == Approx(0.475));
  // what is said of all layers one of them refutes
  const Check all = {.left = "a", .op = Op::above, .right = "0", .in_every_layer = true};
  CHECK(judged(all).verdict == Verdict::holds);
  Check most = all;
  most.right = "0.4";
  CHECK(judged(most).verdict == Verdict::does_not_hold);
}

TEST_CASE("methods that keep unequal numbers of keys are compared, and that is said") {
  for (const bool is_equal : {true, false}) {
    Simulated run(fmt::format("selector,accuracy,kept\nx,1,100\ny,0,{}\n", is_equal ? 101 : 110),
                  {{1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0}});
    const Item item = two("selector=x", "selector=y", {{Role::form, "a", Op::above, "b"}});
    const auto judged = judge(item, measure(item, run.find()), run.find());
    CHECK((judged.reason.find("with 100 keys a query against 110") == std::string::npos) ==
          is_equal);
  }
}

TEST_CASE("what is too small to count is called so") {
  Simulated run("selector,accuracy\nx,1\ny,1\n",
                {std::vector<double>(200, 1.0), std::vector<double>(200, 1.0)});
  const Item item = two("selector=x", "selector=y", {{Role::form, "a", Op::above, "b"}});
  const auto judged = judge(item, measure(item, run.find()), run.find());
  CHECK(judged.verdict == Verdict::too_small);
  CHECK(word_of(judged) == "smaller than 10 points");
}

TEST_CASE("a ratio of perplexities is compared with a number by the log over blocks") {
  Simulated run("selector,perplexity\nfull,7.4\nx,9\n", {{2.0, 2.0, 2.0}, {2.1, 2.2, 2.3}});
  Item item = two("selector=x", "selector=full", {{Role::size, "a", Op::at_most, "1.01"}});
  for (Value& value : item.values) value.column = "perplexity";
  item.values[0].derive = Derive::ratio;
  item.values[0].than = "b";
  CHECK(pairing_of(item, item.checks[0]) == Pairing::block);
  CHECK(threshold_of(item, item.checks[0]) == Approx(std::log(1.01)));
  const auto differences = differences_of(item, item.checks[0], run.find());
  REQUIRE(differences);
  CHECK(mean(differences->of) == Approx(0.2));
}

TEST_CASE("a run's doubts stand beside the items that read its rows") {
  Simulated run("selector,accuracy\nx,1\ny,0.5\nz,0\n", {{1}, {0}, {0}});
  auto summary = run.result.summary();
  summary["doubts"] = {{{"rows", {0, 1}}, {"sentence", "x and y"}},
                       {{"rows", {0, 2}}, {"sentence", "x and z"}}};
  run.result.finish(summary);
  const Item item = two("selector=x", "selector=y", {});
  CHECK(doubts_of(item, run.find()) == std::vector<std::string>{"x and y."});
  // what else kept the machine busy, where it is a tenth of it
  ResultInfo info = run.result.info();
  info.config = {{"machine_cores", 8}, {"other_cores", 0.7}};
  run.result.begin(info);
  run.result.finish({});
  CHECK(doubts_of(item, run.find()).empty());
  info.config["other_cores"] = 1.25;
  run.result.begin(info);
  run.result.finish({});
  CHECK(doubts_of(item, run.find()) ==
        std::vector<std::string>{"Other programs kept 1.2 of 8 cores busy while this was timed."});
}

/// The verdict on "x answers more than each of n_others", of which the truth is the shares of
/// prompts: of those that both answer alike, `both`; beyond, x alone answers `more` of all.
Verdict world(std::mt19937_64& random, double only_x, double only_other, int n_others, int n) {
  std::string csv = "selector,accuracy\nx,0\n";
  Rows units(static_cast<std::size_t>(1 + n_others));
  std::uniform_real_distribution<double> draw(0.0, 1.0);
  for (int i = 0; i < n; ++i) {
    // x answers half of the prompts that tell nothing
    const bool base = draw(random) < 0.5;
    units[0].push_back(base ? 1.0 : 0.0);
    for (int other = 1; other <= n_others; ++other) {
      // P(x only) = only_x and P(other only) = only_other
      const double flip = draw(random);
      const bool differs = base ? flip < 2.0 * only_x : flip < 2.0 * only_other;
      units[other].push_back(base != differs ? 1.0 : 0.0);
    }
  }
  for (int other = 1; other <= n_others; ++other) csv += "y" + std::to_string(other) + ",0\n";
  Simulated run(csv, units);
  Item item;
  item.id = "world";
  item.values = {accuracy("x", "selector=x")};
  for (int other = 1; other <= n_others; ++other) {
    const std::string name = "y" + std::to_string(other);
    item.values.push_back(accuracy(name, "selector=" + name));
    item.checks.push_back({Role::form, "x", Op::above, name});
  }
  return judge(item, measure(item, run.find()), run.find()).verdict;
}

/// A difference that is called too small refutes the claim of one as well.
bool is_as(Verdict found, Verdict wrong) {
  return found == wrong || (wrong == Verdict::does_not_hold && found == Verdict::too_small);
}

TEST_CASE("planted worlds: wrong verdicts stay within their nominal share") {
  constexpr int kWorlds = 1000;
  const auto share = [&](Verdict wrong, double only_x, double only_other, int n_others, int n) {
    std::mt19937_64 random(17);
    int found = 0;
    for (int i = 0; i < kWorlds; ++i)
      found += is_as(world(random, only_x, only_other, n_others, n), wrong) ? 1 : 0;
    return found / static_cast<double>(kWorlds);
  };
  // three standard errors above 5 % of a thousand
  constexpr double kMost = 0.05 + 3.0 * 0.0069;
  for (const int n : {12, 40, 150}) {
    INFO(n);
    // a true claim, at the smallest size that counts and above, is not refuted
    CHECK(share(Verdict::does_not_hold, 0.15, 0.05, 1, n) <= kMost);
    CHECK(share(Verdict::does_not_hold, 0.3, 0.05, 1, n) <= kMost);
    // nor for having six checks
    CHECK(share(Verdict::does_not_hold, 0.15, 0.05, 6, n) <= kMost);
    // a false one, level or below, is not confirmed
    CHECK(share(Verdict::holds, 0.1, 0.1, 1, n) <= kMost);
    CHECK(share(Verdict::holds, 0.05, 0.15, 1, n) <= kMost);
  }
  // and where prompts suffice the truth is found
  CHECK(share(Verdict::holds, 0.3, 0.05, 1, 150) >= 0.9);
  CHECK(share(Verdict::does_not_hold, 0.05, 0.3, 1, 150) >= 0.9);
  // what is undecidable with 12 prompts is left open
  CHECK(share(Verdict::not_decided, 0.15, 0.05, 1, 12) >= 0.8);
}

}  // namespace kvscope::papers::paired_test
