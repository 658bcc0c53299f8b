// Results from every kind of file, told apart by what is in it.
#include "notebooks_export/open_result.hpp"
#include "core/trace/result.hpp"

#include <ctime>
#include <nlohmann/json.hpp>

#include "tests/support/test.hpp"
#include "traces/result_file.hpp"

namespace kvscope::open_result_test {

using testing::TempDir;

/// A result file of `kind` with an array and a summary.
std::filesystem::path write_result(const TempDir& dir, const std::string& name,
                                   const nlohmann::ordered_json& summary) {
  const auto file = dir.path() / name;
  const auto output = create_result_file(file, /*overwrite=*/false);
  output->begin(ResultInfo{.kind = "quest", .created = "2026-01-01T00:00:00Z"});
  output->declare({"mass", ResultType::f32, {2}, {"layer"}, "1", "mass"});
  output->write<float>("mass", 0, std::vector<float>{0.5F, 0.25F});
  output->finish(summary);
  return file;
}

TEST_CASE("contents decide what a result is, not its name") {
  const TempDir dir;
  const char* csv = "selector,mass\nquest,0.5\n";
  const char* json = R"( {"kind": "sweep", "config_hash": "ab",
                          "rows": [{"selector": "quest", "mass": 0.5}]})";
  for (const char* name : {"a.csv", "a.txt", "a"}) {
    INFO(name);
    const auto table = open_result(dir.write(name, csv));
    CHECK(table->info().kind == "table");
    CHECK(rows_of(*table).text("selector").at(0) == "quest");
    const auto report = open_result(dir.write(std::string(name) + ".x", json));
    CHECK(report->info().kind == "sweep");
    CHECK(report->info().config_hash == "ab");
    CHECK(rows_of(*report).numbers("mass")[0] == 0.5);
  }
  const auto file =
      write_result(dir, "quest.h5", {{"layers", {{{"layer", 0}, {"mass", 0.5}}, {{"layer", 1}}}}});
  std::filesystem::rename(file, dir.path() / "renamed.result");
  const auto result = open_result(dir.path() / "renamed.result");
  CHECK(result->info().kind == "quest");
  CHECK(result->read("mass") == std::vector<double>{0.5, 0.25});
  CHECK(rows_of(*result).n_rows() == 2);
}

TEST_CASE("rows of several files stand below each other, with their file's name") {
  const TempDir dir;
  const auto one = dir.write("one.csv", "selector,mass\nquest,0.5\n");
  const auto two = dir.write("two.json", R"([{"selector": "full", "mass": 1}])");
  CHECK(read_rows(one).find("file") == nullptr);
  CHECK(read_rows(std::vector{one}).find("file") == nullptr);
  const Table both = read_rows({one, two});
  REQUIRE(both.n_rows() == 2);
  CHECK(both.text("file").at(0) == "one.csv");
  CHECK(both.text("file").at(1) == "two.json");
  CHECK(both.numbers("mass")[1] == 1.0);
}

TEST_CASE("a report with very many fields beside its rows is read in little time") {
  const TempDir dir;
  std::string text = R"({"rows":[{"selector":"quest","mass":0.5}])";
  for (int i = 0; i < 100'000; ++i) text += ",\"field" + std::to_string(i) + "\":1";
  const auto file = dir.write("wide.json", text + "}");
  const std::clock_t begin = std::clock();
  CHECK(rows_of(*open_result(file)).n_rows() == 1);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  CHECK(seconds < 3.0);  // 6 s and more where every field is looked for among all others
}

}  // namespace kvscope::open_result_test
