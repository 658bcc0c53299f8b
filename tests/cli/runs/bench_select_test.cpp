// kvscope bench select, run as a user runs it, on shapes that take milliseconds.
#include <fmt/format.h>

#include <csignal>
#include <set>

#include "tests/cli/run_program.hpp"

namespace kvscope::test::bench_select_test {

Words bench(const Words& more, const std::string& tokens = "64,96") {
  return with({"bench", "select", "--n-q", "4", "--n-kv", "2", "--d-head", "16", "--lengths",
               tokens, "--chunk", "16", "--repeat", "2"},
              more);
}

TEST_CASE("bench select times every method beside dense attention") {
  const auto run = ran(bench({"--budget", "16,p=0.9", "--json"}));
  const auto json = run.json();
  CHECK(json.at("bench") == "select");
  CHECK(json.at("n_q") == 4);
  CHECK(json.at("threads") == 1);
  CHECK(json.at("left_out").size() == 1);  // specattn has no draft here
  std::set<std::string> calls;
  for (const auto& row : json.at("rows")) {
    INFO(row.dump());
    calls.insert(fmt::format("{} {}", row.at("phase").get<std::string>(), row.at("tokens").dump()));
    CHECK(row.at("queries") == (row.at("phase") == "decode" ? 1 : 16));
    CHECK(row.at("dense_seconds_median") > 0.0);
    CHECK(row.at("select_over_dense") > 0.0);
    CHECK(row.at("append_over_dense") >= 0.0);
    CHECK(row.at("flops_over_dense") >= 0.0);
    CHECK(row.at("kept") > 0.0);
    CHECK(row.at("kept") <= row.at("tokens"));
  }
  CHECK(calls == std::set<std::string>{"prefill 64", "prefill 96", "decode 64", "decode 96"});
  CHECK(json.at("rows").size() > 60);
}

TEST_CASE("bench select measures what it is told, at the budget it is told") {
  const auto json = kvscope_run(bench({"--selector", "quest:dense-layers=0,quoka", "--budget",
                                       "tokens=32", "--phase", "prefill", "--json"},
                                      "80"))
                        .json();
  const auto& rows = json.at("rows");
  REQUIRE(rows.size() == 2);
  CHECK(rows.at(0).at("selector") == "quest:dense-layers=0");
  CHECK(rows.at(1).at("budget_kind") == "tokens");
  CHECK(rows.at(1).at("budget") == 32);
  CHECK(rows.at(1).at("kept") == 48.0);  // the budget and the chunk
  const auto table = ran(bench({"--selector", "quoka", "--phase", "decode"}));
  CHECK_HAS(table.out, "decode, 64 keys, 1 queries", "quoka");
  CHECK(table.err.empty());
}

TEST_CASE("wrong uses of bench select end with one sentence and exit code 2") {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--selector", "qoka"}, "did you mean quoka"},
      {{"--selector", "specattn"}, "draft"},
      {{"--selector", "quest", "--budget", "p=0.5"}, "none of the budgets"},
      {{"--selector", "quest", "--budget", "0"}, "at least 1"},
      {{"--selector", "quest:page-size=0"}, "page-size"},
      {{"--selector", ",quest"}, "--selector"},
      {{"--lengths", "16"}, "--lengths"},
      {{"--lengths", "many"}, "--lengths"},
      {{"--lengths", "900000", "--n-kv", "1024", "--n-q", "1024", "--d-head", "1024"}, "GiB"},
      {{"--n-q", "5"}, "multiple"},
      {{"--n-kv", "0"}, "--n-kv"},
      {{"--d-head", "0"}, "--d-head"},
      {{"--chunk", "0"}, "--chunk"},
      {{"--repeat", "0"}, "--repeat"},
      {{"--threads", "0"}, "--threads"},
      {{"--phase", "verify"}, "phase"},
  };
  for (const auto& [words, part] : cases) refused(with({"bench", "select"}, words), 2, {part});
}

TEST_CASE("bench select says beforehand how much it will measure") {
  RunningProgram all({"bench", "select"});
  CHECK(all.waits_for("times in 6 calls (at 4096, 16384, 32768 keys): minutes"));
  all.send(SIGINT);
  CHECK(all.wait().code == 130);
}

}  // namespace kvscope::test::bench_select_test
