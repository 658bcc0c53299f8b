// Values read from small tables whose numbers can be counted.
#include "analysis/papers/measure.hpp"

#include "analysis/base/read_table.hpp"
#include "core/trace/result.hpp"
#include "tests/support/test.hpp"

namespace kvscope::papers::measure_test {

/// A table in memory as the result of the run "run"; any other run is missing.
struct Results {
  explicit Results(const std::string& csv) {
    table_to_result(table_from_csv(csv, "run.csv"), ResultInfo{.kind = "table"}, result);
  }
  FindRun find() {
    return [this](const std::string& run) {
      return run == "run" ? RunResult{&result, ""} : RunResult{nullptr, run + " failed"};
    };
  }
  MemoryResult result{"run.csv"};
};

const char* const kTable =
    "selector,budget,q_head,accuracy,prompts,mass,mass_low,mass_high\n"
    "full,,,1,10,1,1,1\n"
    "quest,64,,0.8,10,0.5,0.4,0.6\n"
    "quest,256,,0.6,10,0.7,0.6,0.9\n"
    "quest,256,3,0.1,10,0.1,0.1,0.1\n"
    "h2o,64,,0,10,0.2,0.1,0.3\n";

Item item_of(std::vector<Value> values) {
  Item item;
  item.id = "made-up";
  item.values = std::move(values);
  return item;
}

Measured one(Value value) {
  Results results(kTable);
  value.key = "x";
  value.run = "run";
  return measure(item_of({value}), results.find())[0];
}

TEST_CASE("rows are chosen by equal words, equal numbers, bounds and empty cells") {
  CHECK(one({.column = "mass", .where = "selector=quest;q_head="}).value == Approx(0.6));
  CHECK(one({.column = "mass", .where = "selector=quest;q_head=;budget>=100"}).value ==
        Approx(0.7));
  CHECK(one({.column = "mass", .where = "selector=quest;q_head=;budget<=64"}).value == Approx(0.5));
  CHECK(one({.column = "mass", .where = "selector!=quest;budget=64.0"}).value == Approx(0.2));
  CHECK(one({.column = "mass", .where = "selector=quest", .reduce = Reduce::min}).value ==
        Approx(0.1));
  CHECK(one({.column = "mass", .where = "nowhere=", .reduce = Reduce::max}).value == Approx(1.0));
  CHECK_HAS(one({.column = "mass", .where = "selector=nobody"}).missing,
            "no row with selector=nobody");
  CHECK(!one({.column = "nothing"}).missing.empty());
}

TEST_CASE("intervals: recorded ends, Wilson's of prompts at two budgets, the range of the rows") {
  const Measured recorded =
      one({.column = "mass", .where = "selector=quest;q_head=", .spread = Spread::recorded});
  CHECK(recorded.low == Approx(0.5));
  CHECK(recorded.high == Approx(0.75));
  const Measured wilson =
      one({.column = "accuracy", .where = "selector=quest;q_head=", .spread = Spread::wilson});
  CHECK(wilson.prompts == 10);
  CHECK(wilson.value == Approx(0.7));
  CHECK(wilson.low == Approx(0.3968).margin(5e-4));  // 7 of 10, by a table of Wilson's interval
  CHECK(wilson.high == Approx(0.8922).margin(5e-4));
  const Measured range = one({.column = "mass", .where = "selector=quest", .spread = Spread::rows});
  CHECK(range.low == Approx(0.1));
  CHECK(range.high == Approx(0.7));
  CHECK(range.is_range);
}

TEST_CASE("values with respect to others") {
  Results results(kTable);
  const auto values = [&](Derive derive) {
    return measure(item_of({{.key = "a",
                             .run = "run",
                             .column = "mass",
                             .where = "selector=quest;budget=64",
                             .spread = Spread::recorded,
                             .derive = derive,
                             .than = "b"},
                            {.key = "b",
                             .run = "run",
                             .column = "mass",
                             .where = "selector=h2o",
                             .spread = Spread::recorded}}),
                   results.find())[0];
  };
  CHECK(values(Derive::ratio).value == Approx(2.5));
  CHECK(values(Derive::ratio).low == Approx(0.4 / 0.3));
  CHECK(values(Derive::ratio).high == Approx(0.6 / 0.1));
  CHECK(values(Derive::per_lost).value == Approx(0.5 / 0.8));
  CHECK_THROWS_AS(measure(item_of({{.key = "a",
                                    .run = "run",
                                    .column = "mass",
                                    .derive = Derive::ratio,
                                    .than = "nobody"}}),
                          results.find()),
                  ConfigError);
}

TEST_CASE("a run that failed leaves its sentence") {
  Results results(kTable);
  const auto measured =
      measure(item_of({{.key = "a", .run = "other", .column = "mass"}}), results.find());
  CHECK(measured[0].missing == "other failed");
  CHECK(std::isnan(measured[0].value));
  CHECK(number_of(measured[0], Unit::percent) == "-");
}

TEST_CASE("numbers in their units") {
  CHECK(plain_number(0.873, Unit::percent) == "87.3 %");
  CHECK(plain_number(1.0, Unit::percent) == "100 %");
  CHECK(plain_number(2.0, Unit::factor) == "2.00x");
  CHECK(plain_number(48, Unit::tokens) == "48 tokens");
}

}  // namespace kvscope::papers::measure_test
