// kvscope explain, run as a user runs it.
#include <catch2/catch_test_macros.hpp>

#include "tests/cli/run_program.hpp"

namespace kvscope::test {
namespace {

TEST_CASE("explain names the heads that look at a needle which a window lost") {
  const auto run = kvscope_run({"explain", "--facts", "8", "--selector", "streamingllm", "--budget",
                                "ratio=0.25", "--length", "512", "--depths", "1", "--json"});
  INFO(run.err);
  REQUIRE(run.code == 0);
  const auto json = run.json();
  CHECK(json.at("missed") == 1);
  REQUIRE(!json.at("rows").empty());
  for (const auto& row : json.at("rows")) {
    CHECK(row.at("dense_weight").get<double>() >= 0.2);
    CHECK(row.at("kept") == 0);  // the fact stands in the middle, outside the window
  }
}

TEST_CASE("explain refuses what it cannot run") {
  CHECK(kvscope_run({"explain"}).code == 2);
  CHECK(kvscope_run({"explain", "--selector", "specattn", "--budget", "p=0.9"}).code == 2);
}

}  // namespace
}  // namespace kvscope::test
