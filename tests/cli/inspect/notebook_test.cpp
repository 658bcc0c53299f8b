// kvscope notebook, run as a user runs it: files found, paths relative, wrong files refused. What
// the notebooks do when they run is the test run_notebooks'.
#include "tests/cli/run_program.hpp"

namespace kvscope::test::notebook_test {

struct Recorded {
  TempDir dir;
  std::string trace = file("trace.h5");
  std::string quest = file("quest.h5");
  Recorded() {
    ran({"record", trace, "--max-tokens", "64", "--decode", "2"});
    ran({"analyze", "quest", trace, "--out", quest});
  }
  std::string file(const std::string& name) const { return dir.file(name); }
};

/// The source of the parameters cell.
std::string parameters_of(const std::string& file) {
  const auto notebook = nlohmann::json::parse(read_file(file));
  std::string source;
  for (const auto& line : notebook["cells"][1]["source"]) source += line.get<std::string>();
  return source;
}

TEST_CASE("a notebook names its files relative to its folder, and what they were") {
  const Recorded recorded;
  fs::create_directory(recorded.dir.path() / "sub");
  const std::string out = recorded.file("sub/b.ipynb");
  CHECK(ran({"notebook", "bounds", recorded.quest, "--out", out}).out.empty());
  const std::string parameters = parameters_of(out);
  CHECK_HAS(parameters, "RESULTS = [\"../quest.h5\"]", "TRACES = [\"../trace.h5\"]",
            "\"content_hash\":\"xxh128:");
  CHECK_THAT(read_file(out), !has(recorded.dir.path().string()));
  const std::string before = read_file(out);
  CHECK(kvscope_run({"notebook", "bounds", recorded.quest, "--out", out}).code == 3);
  ran({"notebook", "bounds", recorded.quest, "--out", out, "--overwrite"});
  CHECK(read_file(out) == before);
}

TEST_CASE("a trace that moved away is named by its expected place; one that was given is used") {
  const Recorded recorded;
  fs::create_directory(recorded.dir.path() / "far");
  const std::string moved = recorded.file("far/other.h5");
  fs::rename(recorded.trace, moved);
  const std::string out = recorded.file("b.ipynb");
  ran({"notebook", "bounds", recorded.quest, "--out", out});
  CHECK_HAS(parameters_of(out), "TRACES = [\"trace.h5\"]");
  ran({"notebook", "bounds", recorded.quest, "--trace", moved, "--out", out, "--overwrite"});
  CHECK_HAS(parameters_of(out), "TRACES = [\"far/other.h5\"]");
}

TEST_CASE("wrong kinds and files end with a sentence and leave no notebook") {
  const Recorded recorded;
  const std::string out = recorded.file("b.ipynb");
  const auto fails = [&](const Words& words, int code, const char* sentence) {
    refused(with(with({"notebook"}, words), {"--out", out}), code, {sentence});
    CHECK(!fs::exists(out));
  };
  fails({"bound", recorded.quest}, 2, "Did you mean bounds");
  fails({"bounds"}, 2, "RESULT is missing");
  fails({"recall", recorded.quest}, 2, "shows results of sweep");
  fails({"bounds", recorded.trace}, 3, "trace.h5");
  fails({"bounds", recorded.file("none.h5")}, 3, "none.h5");
  fails({"bounds", recorded.quest, recorded.quest}, 2, "two results are of kind quest");
  const std::string other = recorded.file("other.h5");
  ran({"record", other, "--max-tokens", "32"});
  fails({"bounds", recorded.quest, "--trace", other}, 2, "no result is about");
  const auto csv = recorded.dir.write("x.csv", "a,b\n1,2\n");
  fails({"simulation", csv.string()}, 3, "columns task and config_hash; kvscope sweep and");
  CHECK(kvscope_run({"notebook", "bounds", recorded.quest, "--out", recorded.file("b.txt")}).code ==
        2);
  CHECK(kvscope_run({"notebook", "bounds", recorded.quest, "--out", recorded.file("no/b.ipynb")})
            .code == 3);
}

}  // namespace kvscope::test::notebook_test
