// kvscope cost and bench machine, run as a user runs them.
#include <set>

#include "tests/cli/run_program.hpp"

namespace kvscope::test::cost_test {

TEST_CASE("cost predicts methods on cards, and a figure shows it") {
  const TempDir dir;
  const std::string trace = recording(200, 4);
  const std::string out = dir.file("cost.json");
  const auto run =
      ran({"cost", trace, "--phase", "decode", "--steps", "3", "--selector",
           "full,quest:page-size=4", "--budget", "32", "--hardware", "h100-sxm,rtx-4090", "--batch",
           "1,8", "--context", "32768,2097152", "--out", out, "--json"});
  const auto json = run.json();
  CHECK(json.at("kind") == "cost");
  CHECK(json.at("rows").size() == 2 * 2 * 3 * 2);
  for (const auto& row : json.at("rows")) {
    CHECK(row.at("predicted_us").is_number());
    CHECK(row.at("call_us").is_number());  // the recording knows its model
  }
  CHECK(std::filesystem::exists(out));
  ran({"figure", "cost", out, "--out", dir.file("figures")});
  const auto text =
      ran({"cost", trace, "--selector", "quoka", "--budget", "32", "--hardware", "a100-80"});
  CHECK_HAS(text.out, "pays from", "a100-80");
  // Exists.
  CHECK(kvscope_run({"cost", trace, "--selector", "full", "--hardware", "a100-80", "--out", out})
            .code != 0);
}

TEST_CASE("cost --ledger prints predicted, published and error") {
  const auto json = kvscope_run({"cost", "--ledger", "--json"}).json();
  CHECK(json.at("rows").size() > 50);
  CHECK(json.at("headlines").size() == 9);
  CHECK(json.at("groups").size() == 4);
  CHECK(json.at("median_error").is_number());
  CHECK_HAS(ran({"cost", "--ledger"}).out, "quest-attention", "settings assumed");
}

TEST_CASE("cost --check reads a report of bench select and a profile") {
  const TempDir dir;
  const std::string bench = dir.file("bench.json");
  const auto measured = ran({"bench", "select", "--selector", "quest,quoka", "--lengths", "256,512",
                             "--chunk", "16", "--repeat", "2", "--json"});
  std::ofstream(bench) << measured.out;
  const auto run =
      ran({"cost", "--check", "--measured", bench, "--hardware", "xeon-w-2125", "--json"});
  const auto json = run.json();
  CHECK(json.at("median_error").is_number());
  CHECK(json.at("methods").size() >= 2);
  for (const auto& row : json.at("rows")) CHECK(row.at("predicted_us") > 0.0);
}

TEST_CASE("cost --check measures calls and running prefills and says where they differ") {
  const auto run =
      ran({"cost", "--check", "--selector", "quest,quoka", "--lengths", "256,512", "--repeat", "1",
           "--live", "256", "--threads", "1", "--hardware", "xeon-w-2125", "--json"});
  const auto json = run.json();
  CHECK(json.at("clock") == "wall");
  std::set<std::string> phases;
  for (const auto& row : json.at("rows")) {
    // also by a profile that knows no rates of kvscope's own loops
    if (row.at("selector") == "quoka") CHECK(row.at("predicted_choose_us") > 0.0);
    phases.insert(row.at("phase").get<std::string>());
    CHECK(row.at("threads") == 1);
    CHECK(row.at("measured_us") > 0.0);
    CHECK(row.at("predicted_us") > 0.0);
    const double parts =
        row.at("measured_choose_us").get<double>() + row.at("measured_attend_us").get<double>();
    CHECK(parts == Catch::Approx(row.at("measured_us").get<double>()));
  }
  CHECK(phases == std::set<std::string>{"prefill", "decode", "live prefill"});
  CHECK(json.at("methods").size() == 3);  // dense attention is one
  const auto text =
      ran({"cost", "--check", "--selector", "quest", "--lengths", "256", "--repeat", "1", "--live",
           "0", "--threads", "1", "--clock", "cpu", "--hardware", "xeon-w-2125"});
  CHECK_HAS(text.out, "choosing", "quest");
}

TEST_CASE("cost refuses what it cannot do in one sentence and writes nothing") {
  const TempDir dir;
  const std::string out = dir.file("o.json");
  const std::string bad = dir.file("bad.json");
  std::ofstream(bad) << "{\"format\": \"kvscope hardware 1\", \"name\": \"x\"}";
  const std::string trace = recording(64);
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"cost", trace, "--selector", "full", "--hardware", "h1000"}, "h1000"},
      {{"cost", trace, "--selector", "full", "--hardware", bad}, "title"},
      {{"cost", trace, "--selector", "full"}, "--hardware is missing"},
      {{"cost", trace, "--selector", "quoka", "--budget", "60", "--hardware", "h200", "--context",
        "4096"},
       "tokens or more"},
      {{"cost", "--selector", "full", "--hardware", "h200"}, "TRACE is missing"},
      {{"cost", "--ledger", "--check"}, "exclude"},
      {{"cost", "--ledger", "--batch", "2"}, "exclude"},
      {{"cost", trace, "--selector", "full", "--hardware", "h200", "--batch", "0"}, "--batch"},
      {{"cost", trace, "--selector", "full", "--hardware", "h200", "--kv-dtype", "int3"}, "int3"},
      {{"cost", "--check", "--measured", bad, "--hardware", "h200"}, "bench select"},
      {{"cost", "--ledger", "--repeat", "2"}, "--repeat needs --check"},
      {{"cost", "--check", "--measured", bad, "--lengths", "512"}, "exclude each other"},
      {{"cost", "--check", "--lengths", "64"}, "--lengths"},
      {{"cost", "--check", "--repeat", "0"}, "--repeat"},
      {{"cost", "--check", "--live", "-1"}, "--live"},
      {{"cost", "--check", "--budget", "16"}, "exclude"},
      {{"cost", "--check", "--selector", "specattn", "--threads", "1", "--hardware", "h200"},
       "draft"},
      {{"cost", "--check", "--clock", "cpu", "--threads", "2", "--hardware", "h200"},
       "--clock cpu"},
      {{"cost", "--check", "--clock", "sun"}, "clock"}};
  for (const auto& [words, part] : cases) {
    const auto run = kvscope_run(with(words, {"--out", out}));
    INFO(run.err);
    CHECK(run.code != 0);
    CHECK(run.err_is_one_line());
    CHECK_HAS(run.err, part);
    CHECK_FALSE(std::filesystem::exists(out));
  }
}

}  // namespace kvscope::test::cost_test
