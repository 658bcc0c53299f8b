// Weights that were replaced under the name of the old ones: work that was begun is not continued
// with them, and units of both do not make a result.
#include "analysis/base/checked_lines.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"

namespace kvscope::test::unit_weights_test {

/// The embedded draft under a usual name, and whose weights can be replaced in place.
struct Bench {
  TempDir dir;
  fs::path model = dir.path() / "llm";

  Bench() { fs::copy(testing::source_dir() / "traces/samples/draft", model); }
  std::string file(const std::string& name) const { return dir.file(name); }
  /// As after another round of training: the same shape, the same name, another number at the end.
  void replace_weights() const {
    const fs::path weights = model / "model.safetensors";
    std::string bytes = read_file(weights);
    bytes[bytes.size() - 4] ^= 1;
    std::ofstream(weights, std::ios::binary | std::ios::trunc) << bytes;
  }
  Words command(const Words& more) const {
    return with({"simulate", "perplexity", "--model", model.string(), "--max-tokens", "48",
                 "--offset", "0", "--windows", "1", "--selector", "recent", "--budget", "16,32"},
                more);
  }
};

void check_refused(const RunResult& run, const std::string& units) {
  INFO(run.err);
  CHECK(run.code == 2);
  CHECK(run.err_is_one_line());
  CHECK_HAS(run.err, "other weights than those that " + units);
}

TEST_CASE("units are continued with the weights that they were begun with, and no others") {
  const Bench bench;
  const Words keep = bench.command({"--units", bench.file("kept"), "--json"});
  const RunResult first = ran(keep);
  CHECK(first.json().at("config").at("model_hash").get<std::string>().starts_with("xxh128:"));
  bench.replace_weights();
  check_refused(kvscope_run(keep), "units 0 to 1 were made with");
  check_refused(kvscope_run({"merge", bench.file("kept")}), "units 0 to 1 were made with");
  bench.replace_weights();  // the old ones again
  CHECK(kvscope_run(keep).out == first.out);
}

TEST_CASE("units of two models do not make a result") {
  const Bench bench;
  const auto do_unit = [&](std::size_t unit) {
    const auto list = kvscope_run(bench.command({"--list-units", "--json"})).json();
    ran(bench.command(
        {"--unit", list.at("units").at(unit).at("id"), "--out", bench.file("units")}));
  };
  do_unit(0);
  bench.replace_weights();
  do_unit(1);
  refused({"merge", bench.file("units")}, 2, {"other weights than those that unit"});
}

TEST_CASE("a journal is continued with its weights, and no others") {
  const Bench bench;
  ran(bench.command({"--units", bench.file("kept")}));
  // The journal of a run that ended after its first unit, as the unit's file has it.
  std::string journal;
  for (const auto& entry : fs::directory_iterator(bench.file("kept"))) {
    if (entry.path().stem().string().ends_with("-000000")) {
      read_checked_lines(entry.path(), "unit", [&](const auto& line, bool is_first) {
        journal += checked_line(is_first ? line.at("header") : line);
      });
    }
  }
  bench.dir.write("out.csv.journal", journal);
  const Words resume = bench.command({"--resume", "--out", bench.file("out.csv")});
  bench.replace_weights();
  check_refused(kvscope_run(resume), "unit 0 was made with");
  CHECK(read_file(bench.file("out.csv.journal")) == journal);
  bench.replace_weights();
  ran(resume);
}

TEST_CASE("a recording says which weights it is of") {
  const Bench bench;
  const auto hash_of = [&](const std::string& out) {
    ran({"record", bench.file(out), "--model", bench.model.string(), "--max-tokens", "16",
         "--layers", "0"});
    return kvscope_run({"info", bench.file(out), "--json"}).json().at("model").at("hash");
  };
  const auto before = hash_of("a.h5");
  CHECK(before == kvscope_run({"info", bench.model.string(), "--json"}).json().at("hash"));
  CHECK(before == kvscope_run({"info", "draft", "--json"}).json().at("hash"));
  bench.replace_weights();
  CHECK(hash_of("b.h5") != before);
}

}  // namespace kvscope::test::unit_weights_test
