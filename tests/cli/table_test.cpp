// kvscope table, run as a user runs it: presets, formats, files that are no results.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/cli/recordings.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"
#include "tests/support/temp_dir.hpp"

namespace kvscope::test::table_test {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::read_file;
using testing::TempDir;

const std::string kPasskey = (testing::source_dir() / "tests/golden/results/passkey.csv").string();

TEST_CASE("a simulation's CSV becomes Quest's table in every format") {
  const TempDir dir;
  const auto markdown = kvscope_run({"table", "quest-passkey", kPasskey, "--where", "length=512"});
  INFO(markdown.err);
  REQUIRE(markdown.code == 0);
  CHECK_THAT(markdown.out, ContainsSubstring("| Method / Budget |         64 |        128 |"));
  CHECK_THAT(markdown.out, ContainsSubstring("| Full attention  |       100% |       100% |"));
  CHECK_THAT(markdown.out, ContainsSubstring("| Quest           |   **100%** |   **100%** |"));
  const std::string tex = (dir.path() / "t.tex").string();
  REQUIRE(
      kvscope_run({"table", "quest-passkey", kPasskey, "--out", tex, "--label", "tab:x"}).code ==
      0);
  CHECK_THAT(read_file(tex), ContainsSubstring("\\label{tab:x}"));
  CHECK_THAT(read_file(tex),
             ContainsSubstring("Length & \\multicolumn{2}{c}{512} & \\multicolumn{2}{c}{1024}"));
  const auto csv = kvscope_run({"table", "quest-passkey", kPasskey, "--format", "csv"});
  CHECK_THAT(csv.out,
             ContainsSubstring("Method / Budget,512 / 64,512 / 128,1024 / 64,1024 / 128\n"));
  const auto exists = kvscope_run({"table", "quest-passkey", kPasskey, "--out", tex});
  CHECK(exists.code == 3);
  CHECK(kvscope_run({"table", "quest-passkey", kPasskey, "--out", tex, "--overwrite"}).code == 0);
  // Nothing half written.
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("sweeps give the same table from CSV, JSON and HDF5; analyses give one row per layer") {
  const TempDir dir;
  const auto file = [&](const std::string& name) { return (dir.path() / name).string(); };
  const std::string trace = recording(96, 4);
  std::string first;
  for (const std::string extension : {".csv", ".json", ".h5"}) {
    const std::string sweep = file("sweep" + extension);
    REQUIRE(kvscope_run({"sweep", trace, "--selector", "full,quest,streamingllm,oracle-topk",
                         "--budget", "16,32", "--chunk", "32", "--out", sweep})
                .code == 0);
    const auto table = kvscope_run({"table", "--rows", "selector", "--columns", "budget", "--value",
                                    "mass_mean", "--spread", "recorded", sweep});
    INFO(table.err);
    REQUIRE(table.code == 0);
    if (first.empty()) first = table.out;
    CHECK(table.out == first);
  }
  CHECK_THAT(first, ContainsSubstring("Oracle top-k"));
  CHECK_THAT(first, ContainsSubstring("Each cell is the mean of 8 rows"));
  const std::string quest = file("quest.h5");
  REQUIRE(kvscope_run({"analyze", "quest", trace, "--out", quest}).code == 0);
  const auto layers =
      kvscope_run({"table", "--rows", "layer", "--value", "eval_mass,kernel_mass", quest});
  INFO(layers.err);
  REQUIRE(layers.code == 0);
  CHECK_THAT(layers.out,
             ContainsSubstring("| Layer | Attention kept | Attention kept by the kernel's rule |"));
  const auto not_a_result = kvscope_run({"table", "--rows", "layer", "--value", "mass", trace});
  CHECK(not_a_result.code == 3);
  CHECK(not_a_result.err_is_one_line());
  CHECK_THAT(not_a_result.err, ContainsSubstring("expected a result, found a recording (a trace)"));
  const auto not_a_trace = kvscope_run({"analyze", "quest", quest});
  CHECK(not_a_trace.code == 3);
  CHECK_THAT(not_a_trace.err, ContainsSubstring("expected a recording (a trace), found a result"));
}

TEST_CASE("wrong words and files end with a sentence and leave nothing behind") {
  const TempDir dir;
  const auto fails = [&](const Words& words, int code, const char* sentence) {
    Words all = {"table"};
    all.insert(all.end(), words.begin(), words.end());
    const auto result = kvscope_run(all);
    INFO(sentence << " | " << result.err);
    CHECK(result.code == code);
    CHECK(result.err_is_one_line());
    CHECK_THAT(result.err, ContainsSubstring(sentence));
    CHECK(result.out.empty());
  };
  fails({}, 2, "expected a preset (quoka-1");
  fails({"quest-paskey", kPasskey}, 2, "Did you mean quest-passkey");
  fails({"quest-passkey"}, 2, "RESULT is missing");
  fails({"quest-passkey", (dir.path() / "none.csv").string()}, 3, "none.csv");
  fails({"quest-passkey", dir.path().string()}, 3, "folder");
  fails({"quest-passkey", kPasskey, "--where", "selector=quoka"}, 2,
        "there is full, quest, streamingllm");
  fails({"quest-passkey", kPasskey, "--where", "selector"}, 2, "--where: expected NAME=TEXT");
  fails({"quest-passkey", kPasskey, "--value", "perplexity"}, 2, "no column \"perplexity\"");
  fails({"quest-passkey", kPasskey, "--value", "accuracy:half"}, 2,
        "difference, relative or ratio");
  fails({"quest-passkey", kPasskey, "--out", "t.pdf"}, 2, ".tex, .md or .csv");
  fails({"quest-passkey", kPasskey, "--label", "a}b"}, 2, "--label");
  fails({"quest-passkey", kPasskey, "--out", (dir.path() / "no/t.tex").string()}, 3,
        "cannot write");
  fails({"specattn-1", kPasskey}, 2, "perplexity");
  const auto broken = dir.write("broken.csv", "selector,accuracy\nquest\n");
  fails({"quest-passkey", broken.string()}, 3, "line 2: expected 2 fields");
  const auto empty = dir.write("empty.csv", "selector,budget,accuracy\nquest,64,\n");
  fails({"quest-passkey", empty.string(), "--out", (dir.path() / "t.tex").string()}, 2,
        "is empty in all 1 rows");
  CHECK(!std::filesystem::exists(dir.path() / "t.tex"));
  CHECK(kvscope_run({"table", "--presets"}).out.starts_with("preset"));
}

}  // namespace
}  // namespace kvscope::test::table_test
