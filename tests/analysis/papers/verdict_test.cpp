// The verdict of items with made-up values: every word, and which check decides.
#include "analysis/papers/verdict.hpp"

#include <set>

#include "tests/support/test.hpp"

namespace kvscope::papers::verdict_test {

Measured number(double value) {
  Measured measured;
  measured.value = measured.low = measured.high = value;
  return measured;
}

Measured between(double value, double low, double high) {
  Measured measured = number(value);
  measured.low = low;
  measured.high = high;
  measured.interval = "95 % interval";
  return measured;
}

/// No run has a result: values are compared by their own intervals.
Judgement judge(const Item& item, const std::vector<Measured>& measured) {
  return papers::judge(item, measured, [](const std::string&) { return RunResult{}; });
}

Item item_of(std::vector<Check> checks) {
  Item item;
  item.id = "made-up";
  item.values = {
      {.key = "a", .label = "A"}, {.key = "b", .label = "B"}, {.key = "c", .label = "C"}};
  item.checks = std::move(checks);
  return item;
}

TEST_CASE("each role has its verdict") {
  const std::vector<Measured> values = {number(3), number(2), number(1)};
  const auto verdict = [&](std::vector<Check> checks) {
    return judge(item_of(checks), values).verdict;
  };
  CHECK(verdict({}) == Verdict::holds);
  CHECK(verdict({{Role::form, "a", Op::above, "b"}}) == Verdict::holds);
  CHECK(verdict({{Role::form, "b", Op::above, "a"}}) == Verdict::does_not_hold);
  CHECK(verdict({{Role::form, "a", Op::above, "a"}}) == Verdict::does_not_hold);
  CHECK(verdict({{Role::needs, "c", Op::at_least, "2"}, {Role::form, "b", Op::above, "a"}}) ==
        Verdict::cannot_test);
  CHECK(verdict({{Role::form, "a", Op::above, "b"}, {Role::size, "a", Op::at_least, "4"}}) ==
        Verdict::in_form);
  CHECK(verdict({{Role::size, "a", Op::at_least, "4", 1.0}}) == Verdict::holds);
  CHECK(verdict({{Role::form, "c", Op::at_most, "0.5", 0.5}}) == Verdict::holds);
  CHECK(verdict({{Role::form, "a", Op::below, "b"}, {Role::form, "a", Op::above, "b"}}) ==
        Verdict::does_not_hold);
}

TEST_CASE("intervals that overlap decide nothing") {
  const std::vector<Measured> values = {between(0.9, 0.6, 1.0), between(0.5, 0.3, 0.7),
                                        between(0.1, 0.0, 0.2)};
  const auto open = judge(item_of({{Role::form, "a", Op::above, "b"}}), values);
  CHECK(open.verdict == Verdict::not_decided);
  CHECK_HAS(open.reason, "A (0.9 [0.6, 1]) cannot be told apart from B");
  CHECK(judge(item_of({{Role::form, "a", Op::above, "c"}}), values).verdict == Verdict::holds);
  CHECK(judge(item_of({{Role::form, "c", Op::above, "a"}}), values).verdict ==
        Verdict::does_not_hold);
  // At least a bar: sure only if the lower end reaches it, refuted only if the upper end does not.
  CHECK(judge(item_of({{Role::form, "a", Op::at_least, "0.5"}}), values).verdict == Verdict::holds);
  CHECK(judge(item_of({{Role::form, "a", Op::at_least, "0.7"}}), values).verdict ==
        Verdict::not_decided);
  CHECK(judge(item_of({{Role::form, "b", Op::at_least, "0.8"}}), values).verdict ==
        Verdict::does_not_hold);
  CHECK(judge(item_of({{Role::size, "a", Op::at_least, "0.7"}}), values).verdict ==
        Verdict::in_form);
}

TEST_CASE("a range is no interval: every row meets a claim, or none, or it is left open") {
  std::vector<Measured> values = {between(0.9, 0.6, 1.0), number(0.5), number(0)};
  values[0].is_range = true;
  values[0].interval = "range over 8 layers";
  const auto judged = [&] { return judge(item_of({{Role::form, "a", Op::above, "b"}}), values); };
  CHECK(judged().verdict == Verdict::holds);
  CHECK_HAS(judged().reason, "A (0.9, 0.6 to 1) is above");
  values[0].low = 0.1;
  CHECK(judged().verdict == Verdict::not_decided);
  values[0].high = 0.4;
  CHECK(judged().verdict == Verdict::does_not_hold);
}

TEST_CASE("readings: each has its values and checks, and the verdicts are one where they agree") {
  Item item = item_of({{Role::form, "a", Op::above, "0.5"}, {Role::form, "c", Op::above, "0"}});
  item.values[0].where = "selector={method};match=keys={at}";
  item.readings = {{"by one rule", "x", "56"}, {"by another", "y", "63"}};
  item = with_readings(item);
  const auto keys = [&] {
    std::vector<std::string> all;
    for (const Value& value : item.values) all.push_back(value.key);
    return all;
  };
  CHECK(keys() == std::vector<std::string>{"a", "a@y", "b", "c"});
  CHECK(item.values[1].where == "selector=y;match=keys=63");
  CHECK(item.values[1].label == "A, by another");
  struct Row {
    double one, another, common;
    Verdict verdict;
  };
  for (const Row& row : {Row{1, 1, 1, Verdict::holds}, Row{0, 0, 1, Verdict::does_not_hold},
                         Row{1, 0, 1, Verdict::depends}, Row{1, 1, -1, Verdict::does_not_hold}}) {
    const auto judged =
        judge(item, {number(row.one), number(row.another), number(0), number(row.common)});
    CHECK(judged.verdict == row.verdict);
    CHECK_HAS(judged.reason, "By one rule, ", "By another, ");
  }
  const auto open = judge(item, {number(1), between(0.5, 0.1, 0.9), number(0), number(1)});
  CHECK(open.verdict == Verdict::not_decided);  // of which another rule may say otherwise
}

TEST_CASE(
    "controls: what a choice at random does as well does not hold of the one that is claimed") {
  Item item = item_of({{Role::form, "a", Op::above, "0.5"}});
  item.values[0].where = "selector={method}";
  item.values[0].spread = Spread::recorded;
  item.readings = {{"", "quoka"}};
  item.control = ":queries=random";
  item.control_label = "drawn at random";
  item = with_readings(item);
  REQUIRE(item.values[1].key == "a@random");
  CHECK(item.values[1].where == "selector=quoka:queries=random");
  CHECK(judge(item, {number(0.9), number(0.6), number(0), number(0)}).verdict == Verdict::holds);
  const auto judged = judge(item, {number(0.9), number(0.95), number(0), number(0)});
  CHECK(judged.verdict == Verdict::does_not_hold);
  CHECK_HAS(judged.reason, "a choice at random does as well");
}

TEST_CASE("a constructed recording refutes what is said of all, and does not confirm it") {
  Item item = item_of({{Role::form, "a", Op::at_most, "1"}});
  item.values[0].run = "error-bound";
  CHECK(judge(item, {number(1), number(0), number(0)}).verdict == Verdict::not_decided);
  CHECK(judge(item, {number(2), number(0), number(0)}).verdict == Verdict::does_not_hold);
}

TEST_CASE("every check that decides is in the reason, and sizes that nothing can show stay form") {
  const std::vector<Measured> values = {number(3), number(2), number(1)};
  const auto judged = judge(
      item_of({{Role::form, "b", Op::above, "a"}, {Role::form, "c", Op::above, "a"}}), values);
  CHECK_HAS(judged.reason, "B (2) is not above A (3).", "C (1) is not above A (3).");
  CHECK(judged.checks.size() == 2);
  Item form = item_of({{Role::form, "a", Op::above, "b"}});
  form.only_form = "Bytes stand for seconds.";
  CHECK(judge(form, values).verdict == Verdict::in_form);
  CHECK_HAS(judge(form, values).reason, "Bytes stand for seconds.");
}

TEST_CASE("a timing without repeats decides nothing") {
  Item item = item_of({{Role::form, "a", Op::above, "b"}});
  item.values[0].column = "tokens_per_second";
  const std::vector<Measured> values = {number(3), number(2), number(1)};
  CHECK(judge(item, values).verdict == Verdict::not_decided);
  CHECK_HAS(judge(item, values).reason, "one timing without repeats");
  CHECK(judge(item, {between(3, 2.5, 3.5), number(2), number(1)}).verdict == Verdict::holds);
}

TEST_CASE("what was not measured cannot be tested, and says why") {
  std::vector<Measured> values = {number(1), number(2), number(3)};
  values[1].missing = "the model has no tokenizer";
  const auto judged = judge(item_of({{Role::form, "a", Op::above, "b"}}), values);
  CHECK(judged.verdict == Verdict::cannot_test);
  CHECK(judged.reason == "B was not measured: the model has no tokenizer.");
  // A size that is missing leaves the form.
  CHECK(
      judge(item_of({{Role::form, "c", Op::above, "a"}, {Role::size, "b", Op::above, "a"}}), values)
          .verdict == Verdict::in_form);
  Item never = item_of({});
  never.never = "It needs a GPU.";
  CHECK(judge(never, values).reason == "It needs a GPU.");
  CHECK_THROWS_AS(judge(item_of({{Role::form, "a", Op::above, "nobody"}}), values), ConfigError);
}

TEST_CASE("the items: 32 of the papers and the errors, with names that exist") {
  std::set<std::string> ids, run_names;
  for (const Run& run : runs()) CHECK(run_names.insert(run.name).second);
  int n_claims = 0;
  for (const Item& item : items()) {
    INFO(item.id);
    CHECK(ids.insert(item.id).second);
    n_claims += item.kind == Kind::claim ? 1 : 0;
    CHECK(!item.claim.empty());
    CHECK(!item.published.empty());
    CHECK((!item.never.empty() || !item.checks.empty()));
    std::vector<Measured> values(item.values.size(), number(0.5));
    CHECK_NOTHROW(judge(item, values));  // checks name values
    for (const Value& value : item.values) {
      CHECK(run_names.contains(value.run));
      CHECK((value.column + value.where).find('{') == std::string::npos);
    }
    for (const std::string& command : item.pictures) {
      for (const std::string& name : names_in(command))
        CHECK((name.starts_with("pick:") || run_names.contains(name)));
    }
  }
  CHECK(n_claims == 32);
  CHECK(ids.size() == 39);
}

TEST_CASE("methods on the same text are compared by their increase of perplexity") {
  for (const Item& item : items()) {
    if (item.id != "specattn-table-1" && item.id != "specattn-fig-5") continue;
    // Paired with the dense model's tokens; the perplexities' own intervals are those of the text.
    for (const char* key : {"spec", "quest"}) {
      const auto at =
          std::ranges::find_if(item.values, [&](const Value& value) { return value.key == key; });
      REQUIRE(at != item.values.end());
      CHECK(at->column == "relative_increase");
      CHECK(at->spread == Spread::recorded);
    }
  }
}

TEST_CASE("facts are asked as the dense model can answer them") {
  for (const Run& run : runs()) {
    for (const std::string& command : {run.full, run.quick}) {
      if (!command.starts_with("simulate retrieval")) continue;
      INFO(command);
      const bool picks = command.find("--kinds {pick:asked:accuracy:kind}") != std::string::npos;
      CHECK(picks == (run.name == "needle" || run.name == "passkey"));
      // in the wording in which that kind was found, or in the better of two tries
      const char* const chat = picks ? " {--chat:asked:accuracy} " : " --chat=auto ";
      CHECK(command.find(chat) != std::string::npos);
    }
  }
}

TEST_CASE("command lines become words") {
  const auto substitute = [](std::string_view name) -> std::string {
    if (name == "none") return "";
    if (name == "--model") return "--model\n/my models/a";
    return "dir with blank/" + std::string(name) + ".h5";
  };
  CHECK(expand("record {out} {--model} --prompt 'A is B.' {none} x", substitute) ==
        std::vector<std::string>{"record", "dir with blank/out.h5", "--model", "/my models/a",
                                 "--prompt", "A is B.", "x"});
  CHECK(expand("--out {out}.tex", substitute) ==
        std::vector<std::string>{"--out", "dir with blank/out.h5.tex"});
  CHECK(names_in("{a} {b} x{a} {") == std::vector<std::string>{"a", "b"});
}

}  // namespace kvscope::papers::verdict_test
