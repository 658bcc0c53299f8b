// What a folder of units says of its state, and what a list of units predicts.
#include <chrono>

#include "analysis/base/checked_lines.hpp"
#include "tests/cli/run_program.hpp"

namespace kvscope::test::unit_status_test {

Words sweep(const Words& more) {
  return with({"sweep", recording(96), "--selector", "quest,streamingllm,lessismore", "--budget",
               "16", "--chunk", "32"},
              more);
}

TEST_CASE("info of a folder of units: done, missing, failed, rate and time left") {
  const TempDir dir;
  const fs::path folder = dir.path() / "units";
  ran(sweep({"--units", folder.string()}));
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  REQUIRE(files.size() == 9);
  // Two missing, one failed, and of the others one every six seconds, the last one now.
  nlohmann::ordered_json about;
  read_checked_lines(files[4], "unit", [&](const auto& line, bool is_first) {
    if (is_first) about = line;
  });
  about["failure"] = "its disk broke";
  fs::path failed = files[4];
  std::ofstream(failed.replace_extension(".failed"), std::ios::binary) << checked_line(about);
  for (const std::size_t gone : {1, 4, 8}) fs::remove(files[gone]);
  const auto now = fs::file_time_type::clock::now();
  int age = 0;
  for (const std::size_t done : {0, 2, 3, 5, 6, 7})
    fs::last_write_time(files[done], now - std::chrono::seconds(6 * age++));
  const RunResult run = ran({"info", folder.string(), "--json"});
  const auto json = run.json();
  CHECK(json.at("what") == "units");
  CHECK(json.at("command") == "sweep");
  CHECK(json.at("n_units") == 9);
  CHECK(json.at("done") == 6);
  CHECK(json.at("failed") == 1);
  CHECK(json.at("missing") == 2);
  CHECK(json.at("missing_units").at(0) == files[1].stem().string());
  CHECK(json.at("missing_units").at(1) == files[8].stem().string());
  CHECK(json.at("failed_units").at(0).at("id") == files[4].stem().string());
  CHECK(json.at("failed_units").at(0).at("failure") == "its disk broke");
  CHECK(std::abs(json.at("units_per_hour").get<double>() - 600.0) < 1.0);
  CHECK(std::abs(json.at("seconds_left").get<double>() - 12.0) < 0.1);
  const std::string text = kvscope_run({"info", folder.string()}).out;
  CHECK_HAS(text, "missing", "failed");
  // Nobody has finished one for long: no rate is made up.
  for (const std::size_t done : {0, 2, 3, 5, 6, 7})
    fs::last_write_time(files[done], fs::last_write_time(files[done]) - std::chrono::hours(2));
  CHECK(kvscope_run({"info", folder.string(), "--json"}).json().at("seconds_left").is_null());
}

TEST_CASE("predicted memory counts program and inputs; seconds are unknown until two are timed") {
  const RunResult plain = ran(sweep({"--list-units", "--json"}));
  const auto list = plain.json();
  for (const auto& unit : list.at("units")) {
    CHECK(unit.at("predicted_seconds").is_null());
    CHECK(unit.at("predicted_memory").get<double>() > 8e6);  // no program is smaller
  }
  CHECK_HAS(kvscope_run(sweep({"--list-units"})).out, "unknown");
  const auto probed = kvscope_run(sweep({"--list-units", "--probe", "--json"})).json();
  for (const auto& unit : probed.at("units")) CHECK(unit.at("predicted_seconds") > 0.0);
  const double before = list.at("units").at(0).at("predicted_memory");
  CHECK(probed.at("units").at(0).at("predicted_memory") < 1.3 * before);  // not what probing took
  CHECK(kvscope_run(sweep({"--probe"})).code == 2);
  // What a worker really takes
  const TempDir dir;
  const std::string last = list.at("units").back().at("id");
  const RunResult worker = ran(sweep({"--unit", last, "--out", dir.path().string()}));
  const double memory = list.at("units").back().at("predicted_memory").get<double>();
  INFO(memory << " predicted, " << worker.max_rss_kib * 1024 << " taken");
  // A child's peak counts what its parent held when it was started, which in a run of all tests is
  // more than the worker takes: then there is nothing to compare.
  if (10 * kvscope_run({"version"}).max_rss_kib > 9 * worker.max_rss_kib)
    SKIP("this program's own memory hides the worker's");
  CHECK(memory > static_cast<double>(worker.max_rss_kib) * 1024 / 1.5);
  CHECK(memory < static_cast<double>(worker.max_rss_kib) * 1024 * 1.5);
}

}  // namespace kvscope::test::unit_status_test
