// Units that cannot be done: they say why, stop no other unit, and a result without them says so.

#include "analysis/base/checked_lines.hpp"
#include "tests/cli/run_program.hpp"

namespace kvscope::test::unit_failures_test {

/// Two recordings, of which one can be damaged so that it still opens.
struct Bench {
  TempDir dir;
  std::string good = file("good.h5");
  std::string bad = file("bad.h5");

  Bench() {
    fs::copy_file(recording(96), good);
    fs::copy_file(recording(64), bad);
  }
  std::string file(const std::string& name) const { return dir.file(name); }
  /// One bit amid a layer's keys, values or queries; the same again mends it.
  void flip() const {
    std::fstream bytes(bad, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(fs::file_size(bad) * 6 / 10);
    bytes.seekg(at);
    const char flipped = static_cast<char>(bytes.get() ^ 0x10);
    bytes.seekp(at);
    bytes.put(flipped);
  }
  Words sweep(const Words& more) const {
    return with(
        {"sweep", good, bad, "--selector", "quest,streamingllm", "--budget", "16", "--chunk", "32"},
        more);
  }
};

Words files(const std::string& folder, const std::string& ending) {
  Words names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ending) names.push_back(entry.path().stem());
  }
  return names;
}

TEST_CASE("one bad unit stops no other, and is tried again when that is asked") {
  const Bench bench;
  const std::string whole = bench.file("whole.csv");
  ran(bench.sweep({"--out", whole}));
  bench.flip();
  const std::string folder = bench.file("units");
  const std::string out = bench.file("out.csv");
  const Words command = bench.sweep({"--units", folder, "--out", out});
  const RunResult run = kvscope_run(with(command, {"--engine", "local", "--workers", "2"}));
  CHECK(run.code == 4);
  CHECK_HAS(run.err, "1 of 16 units failed", "--retry-failed", "bad.h5");
  CHECK_FALSE(fs::exists(out));
  CHECK(files(folder, ".unit").size() == 15);
  const Words failed = files(folder, ".failed");
  REQUIRE(failed.size() == 1);
  CHECK_HAS(run.err, "unit " + failed[0] + " failed: ");

  // The next run does not try again by itself, whoever does the units.
  const auto time = fs::last_write_time(fs::path(folder) / (failed[0] + ".failed"));
  CHECK(kvscope_run(command).code == 4);
  CHECK(fs::last_write_time(fs::path(folder) / (failed[0] + ".failed")) == time);

  const RunResult unmerged = kvscope_run({"merge", folder, "--out", out});
  CHECK(unmerged.code == 4);
  CHECK_HAS(unmerged.err, failed[0]);
  CHECK_FALSE(fs::exists(out));

  bench.flip();  // mended
  ran(with(command, {"--retry-failed"}));
  CHECK(read_file(out) == read_file(whole));
  CHECK(files(folder, ".failed").empty());
}

TEST_CASE("a result without a failed unit marks its rows and has the others' bytes") {
  const Bench bench;
  const std::string whole = bench.file("whole.csv");
  ran(bench.sweep({"--out", whole}));
  bench.flip();
  const std::string folder = bench.file("units");
  REQUIRE(kvscope_run(bench.sweep({"--units", folder})).code == 4);
  const std::string out = bench.file("out.csv");
  const RunResult merged = kvscope_run({"merge", folder, "--without-failed", "--out", out});
  INFO(merged.err);
  CHECK(merged.code == 4);
  std::ifstream left(whole), right(out);
  std::size_t n_empty = 0;
  for (std::string a, b; std::getline(left, a) && std::getline(right, b);) {
    if (a == b) continue;
    ++n_empty;
    CHECK(b.starts_with("bad.h5,"));
    // trace, phase, selector, budget kind are there, and the layer; what was measured is not
    CHECK(b.substr(0, b.find(",16,")).size() > 8);
    CHECK(b.find(",,,,,,,,,,,,,,,,,,,,") != std::string::npos);
  }
  const auto info = kvscope_run({"info", bench.bad, "--json"}).json();
  CHECK(n_empty == 2 * (info.at("q_heads").size() + 1));  // of two methods
  const RunResult json = kvscope_run({"merge", folder, "--without-failed", "--json"});
  CHECK(json.code == 4);
  const auto skipped = json.json().at("skipped");
  REQUIRE(skipped.size() == 1);
  CHECK_HAS(skipped[0].get<std::string>(), "its rows are empty");
  // The command itself says the same as the merge.
  const std::string own = bench.file("own.csv");
  CHECK(kvscope_run(bench.sweep({"--units", folder, "--without-failed", "--out", own})).code == 4);
  CHECK(read_file(own) == read_file(out));
  // A table is made of it as of any other.
  const RunResult table =
      ran({"table", out, "--rows", "selector", "--value", "mass_mean", "--format", "csv"});
}

/// Says of a unit that is done that it failed.
void let_fail(const std::string& folder, std::size_t unit) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    nlohmann::ordered_json about;
    read_checked_lines(entry.path(), "unit", [&](const auto& line, bool is_first) {
      if (is_first) about = line;
    });
    if (about.at("unit") != unit) continue;
    about["failure"] = "its disk broke";
    fs::path failed = entry.path();
    failed.replace_extension(".failed");
    std::ofstream(failed, std::ios::binary) << checked_line(about);
    fs::remove(entry.path());
    return;
  }
  FAIL("no such unit");
}

TEST_CASE("simulations and analyses without a failed unit") {
  const Bench bench;
  for (const std::string task : {"retrieval", "perplexity"}) {
    Words command = {"simulate", task, "--selector", "full,recent",
                     "--budget", "32", "--units",    bench.file(task)};
    command = with(command, task == "retrieval"
                                ? Words{"--lengths", "128", "--depths", "1", "--trials", "2"}
                                : Words{"--max-tokens", "48", "--offset", "0", "--windows", "2"});
    ran(command);
    let_fail(bench.file(task), 0);  // the unit that also says what the work is
    const RunResult refused = kvscope_run({"merge", bench.file(task)});
    CHECK(refused.code == 4);
    CHECK_HAS(refused.err, "its disk broke");
    const RunResult merged = kvscope_run({"merge", bench.file(task), "--without-failed", "--json"});
    INFO(merged.err);
    CHECK(merged.code == 4);
    CHECK_HAS(merged.json().at("skipped").dump(), "its disk broke");
    ran(with(command, {"--retry-failed"}));
  }
  const std::string folder = bench.file("quest");
  ran({"analyze", "quest", bench.good, "--units", folder});
  let_fail(folder, 3);
  const RunResult merged = kvscope_run({"merge", folder, "--without-failed"});
  CHECK(merged.code == 4);
  CHECK_HAS(merged.err, "--layers");
}

TEST_CASE(
    "a worker's own code says whether units failed; a rank's does not, for the others' sake") {
  const Bench bench;
  bench.flip();
  const auto list = kvscope_run(bench.sweep({"--list-units", "--json"})).json();
  std::ofstream ids(bench.file("list"));
  for (const auto& unit : list.at("units")) ids << unit.at("id").get<std::string>() << '\n';
  ids.close();
  const Words command = bench.sweep({"--unit", "@" + bench.file("list"), "--out", bench.file("u")});
  const RunResult alone = kvscope_run(command);
  INFO(alone.err);
  CHECK(alone.code == 4);
  CHECK(std::ranges::count(alone.out, '\n') == 16);
  CHECK_HAS(alone.out, " failed\n");
  const RunResult rank = ran(command, {"", {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"}});
  CHECK_HAS(rank.err, "failed: ");
}

TEST_CASE("a folder whose command asks for help is refused") {
  const Bench bench;
  const std::string folder = bench.file("quest");
  ran({"analyze", "quest", bench.good, "--units", folder});
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.path().stem().string().ends_with("-000000")) continue;
    std::string text;
    read_checked_lines(entry.path(), "unit", [&](nlohmann::ordered_json line, bool is_first) {
      if (is_first) line["words"].push_back("--help");
      text += checked_line(line);
    });
    std::ofstream(entry.path(), std::ios::binary | std::ios::trunc) << text;
  }
  refused({"merge", folder}, 3, {"found --help"});
}

}  // namespace kvscope::test::unit_failures_test
