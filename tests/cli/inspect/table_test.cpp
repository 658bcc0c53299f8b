// kvscope table, run as a user runs it: presets, formats, files that are no results.
#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"

namespace kvscope::test::table_test {

const std::string kPasskey = (testing::source_dir() / "tests/golden/results/passkey.csv").string();

TEST_CASE("a simulation's CSV becomes Quest's table in every format") {
  const TempDir dir;
  const auto markdown = ran({"table", "quest-passkey", kPasskey, "--where", "length=512"});
  CHECK_HAS(markdown.out, "| Method / Budget |         64 |        128 |",
            "| Full attention  |       100% |       100% |",
            "| Quest           |   **100%** |   **100%** |");
  const std::string tex = dir.file("t.tex");
  ran({"table", "quest-passkey", kPasskey, "--out", tex, "--label", "tab:x"});
  CHECK_HAS(read_file(tex), "\\label{tab:x}",
            "Length & \\multicolumn{2}{c}{512} & \\multicolumn{2}{c}{1024}");
  const auto csv = kvscope_run({"table", "quest-passkey", kPasskey, "--format", "csv"});
  CHECK_HAS(csv.out, "Method / Budget,512 / 64,512 / 128,1024 / 64,1024 / 128\n");
  CHECK(kvscope_run({"table", "quest-passkey", kPasskey, "--out", tex}).code == 3);
  ran({"table", "quest-passkey", kPasskey, "--out", tex, "--overwrite"});
  // Nothing half written.
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("sweeps give the same table from CSV, JSON and HDF5; analyses give one row per layer") {
  const TempDir dir;
  const auto file = [&](const std::string& name) { return dir.file(name); };
  const std::string trace = recording(96, 4);
  std::string first;
  for (const std::string extension : {".csv", ".json", ".h5"}) {
    const std::string sweep = file("sweep" + extension);
    ran({"sweep", trace, "--selector", "full,quest,streamingllm,oracle-topk", "--budget", "16,32",
         "--chunk", "32", "--out", sweep});
    const auto table = ran({"table", "--rows", "selector", "--columns", "budget", "--value",
                            "mass_mean", "--spread", "recorded", sweep});
    if (first.empty()) first = table.out;
    CHECK(table.out == first);
  }
  CHECK_HAS(first, "Oracle top-k", "Each cell is the mean of 8 rows");
  const auto wide =
      ran({"table", "--rows", "selector", "--columns", "budget", "--value",
           "mass_mean,mass_min,mass_p05,recall10,density,bytes,output_error_rel,jaccard,kept,"
           "union",
           "--format", "latex", file("sweep.csv")});
  CHECK_HAS(wide.err, "pt wide, a page of two columns has 488",
            "a smaller --size or fewer columns");
  const std::string quest = file("quest.h5");
  ran({"analyze", "quest", trace, "--out", quest});
  const auto layers = ran({"table", "--rows", "layer", "--value", "eval_mass,kernel_mass", quest});
  CHECK_HAS(layers.out, "| Layer | Attention kept | Attention kept by the kernel's rule |");
  refused({"table", "--rows", "layer", "--value", "mass", trace}, 3,
          {"expected a result, found a recording (a trace)"});
  refused({"analyze", "quest", quest}, 3, {"expected a recording (a trace), found a result"});
}

TEST_CASE("wrong words and files end with a sentence and leave nothing behind") {
  const TempDir dir;
  const auto fails = [&](const Words& words, int code, const char* sentence) {
    CHECK(refused(with({"table"}, words), code, {sentence}).out.empty());
  };
  fails({}, 2, "expected a preset (quoka-1");
  fails({"quest-paskey", kPasskey}, 2, "Did you mean quest-passkey");
  fails({"quest-passkey"}, 2, "RESULT is missing");
  fails({"quest-passkey", dir.file("none.csv")}, 3, "none.csv");
  fails({"quest-passkey", dir.path().string()}, 3, "folder");
  fails({"quest-passkey", kPasskey, "--where", "selector=quoka"}, 2,
        "there is full, quest, streamingllm");
  fails({"quest-passkey", kPasskey, "--where", "selector"}, 2, "--where: expected NAME=TEXT");
  fails({"quest-passkey", kPasskey, "--value", "perplexity"}, 2, "no column \"perplexity\"");
  fails({"quest-passkey", kPasskey, "--value", "accuracy:half"}, 2,
        "difference, relative or ratio");
  fails({"quest-passkey", kPasskey, "--out", "t.pdf"}, 2, ".tex, .md or .csv");
  fails({"quest-passkey", kPasskey, "--label", "a}b"}, 2, "--label");
  fails({"quest-passkey", kPasskey, "--out", dir.file("no/t.tex")}, 3, "cannot write");
  fails({"specattn-1", kPasskey}, 2, "perplexity");
  const auto broken = dir.write("broken.csv", "selector,accuracy\nquest\n");
  fails({"quest-passkey", broken.string()}, 3, "line 2: expected 2 fields");
  const auto empty = dir.write("empty.csv", "selector,budget,accuracy\nquest,64,\n");
  fails({"quest-passkey", empty.string(), "--out", dir.file("t.tex")}, 2, "is empty in all 1 rows");
  CHECK(!std::filesystem::exists(dir.path() / "t.tex"));
  CHECK(kvscope_run({"table", "--presets"}).out.starts_with("preset"));
}

}  // namespace kvscope::test::table_test
