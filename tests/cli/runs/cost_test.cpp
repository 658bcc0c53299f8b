// kvscope cost, run as a user runs it.
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

TEST_CASE("cost is of whole chunks: a short last one is in no mean") {
  const auto report = ran({"cost", recording(96), "--phase", "prefill", "--chunk", "47",
                           "--selector", "full", "--hardware", "h200", "--json"});
  CHECK(report.json().at("rows").at(0).at("queries") == 47);
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
      {{"cost", trace, "--selector", "full", "--hardware", "h200", "--batch", "0"}, "--batch"},
      {{"cost", trace, "--selector", "full", "--hardware", "h200", "--kv-dtype", "int3"}, "int3"}};
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
