// kvscope sweep and selectors, run as a user runs them.
#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"

namespace kvscope::test::sweep_test {

struct Recorded {
  TempDir dir;
  std::string trace = recording(120, 4);
  std::string draft = draft_recording(120, 4);
  std::string file(const std::string& name) const { return dir.file(name); }
  Words sweep(Words more) const {
    return with({"sweep", trace, "--selector", "quest,streamingllm", "--budget", "16,ratio=0.5",
                 "--chunk", "32"},
                more);
  }
};

TEST_CASE("a sweep prints a table and writes the same rows in three formats") {
  const Recorded recorded;
  CHECK(ran(recorded.sweep({})).out.starts_with("selector"));
  const RunSetup pinned{"", {"SOURCE_DATE_EPOCH=1700000000"}};
  for (const std::string extension : {".csv", ".json", ".h5"}) {
    const auto one = recorded.file("one" + extension);
    const auto two = recorded.file("two" + extension);
    ran(recorded.sweep({"--out", one, "--threads", "1"}), pinned);
    ran(recorded.sweep({"--out", two, "--threads", "3"}), pinned);
    CHECK(read_file(one) == read_file(two));
    CHECK(!std::filesystem::exists(one + ".store"));
    CHECK_HAS(ran(recorded.sweep({"--out", one})).err, "is complete");
    refused(recorded.sweep({"--out", one, "--seed", "5"}), 3, {"exists; --overwrite"});
    ran(recorded.sweep({"--out", one, "--overwrite"}));
  }
}

TEST_CASE("means of a sweep count each row once, in a short last chunk too") {
  const auto sweep = ran({"sweep", recording(96), "--phase", "prefill", "--selector", "full,quest",
                          "--budget", "16", "--chunk", "47", "--rows-per-chunk", "all", "--json"});
  for (const auto& row : sweep.json().at("rows")) {
    if (row.at("selector") == "full") CHECK(row.at("kept").get<double>() == Approx(48.5));
    CHECK(row.at("mass_low").get<double>() <= row.at("mass_mean").get<double>() + 1e-9);
  }
}

TEST_CASE("a sweep says why a method lies above the oracle, and that windows choose nothing") {
  // Of 96 tokens the first chunk is whole: what comes on top of the budget is more than the budget.
  const Words short_text = {"sweep", recording(96), "--phase", "prefill", "--budget", "64"};
  const auto above = ran(with(short_text, {"--selector", "oracle-topk,quest,streamingllm"}));
  CHECK_HAS(above.out, "quest keeps more of the attention than oracle-topk", "--match keys=N");
  const auto below = kvscope_run(with(short_text, {"--selector", "oracle-topk,streamingllm"}));
  CHECK_THAT(below.out, !has("more of the attention than"));
  CHECK_THAT(below.out, !has("nothing to measure"));

  // Who missed the cost is not compared.
  const auto missed = kvscope_run({"sweep", recording(200, 4), "--phase", "decode", "--match",
                                   "density=0.05", "--selector", "oracle-topk,vattention"});
  INFO(missed.err);
  CHECK_HAS(missed.out, "* vattention");
  CHECK_THAT(missed.out, !has("more of the attention than"));

  const TempDir dir;
  const std::string trace = dir.file("windows.h5");
  const std::string ids =
      dir.write("ids.json", "[5, 17, 3, 50, 49, 17, 8, 1, 44, 20, 7, 63, 9]").string();
  ran({"record", trace, "--model", (testing::source_dir() / "tests/golden/mistral_window").string(),
       "--tokens", ids});
  const auto windows = ran({"sweep", trace, "--selector", "recent", "--budget", "4"});
  CHECK_HAS(windows.out, "there is nothing to measure");
}

TEST_CASE("decode and verification sweeps run on real traces") {
  const Recorded recorded;
  const auto decode = ran(recorded.sweep({"--phase", "decode", "--json"}));
  CHECK(decode.json().at("rows").at(0).at("phase") == "decode");
  const Words verify = {"sweep",      recorded.trace,
                        "--selector", "specattn:layer-map=proportional",
                        "--budget",   "p=0.9",
                        "--phase",    "verify",
                        "--drafts",   "2"};
  refused(verify, 2, {"no draft trace"});
  ran(with(verify, {"--draft", recorded.draft}));
}

TEST_CASE("an experiment file says what the flags say") {
  const Recorded recorded;
  const auto config = recorded.file("experiment.json");
  std::ofstream(config)
      << "{\"traces\": [\"" << recorded.trace
      << "\"], \"selector\": [\"quest\", \"streamingllm\"], \"budget\": [16, \"ratio=0.5\"],"
         " \"chunk\": 16, \"rows_per_chunk\": 4}";
  const auto by_file = ran({"sweep", "--config", config, "--chunk", "32", "--json"});
  CHECK(by_file.json() == kvscope_run(recorded.sweep({"--rows-per-chunk", "4", "--json"})).json());
  const std::string out = recorded.file("by_file.csv");
  std::ofstream(config) << "{\"engine\": \"local\", \"workers\": 1, \"out\": \"" << out << "\"}";
  ran(recorded.sweep({"--config", config}));
  CHECK(fs::exists(out));
  std::ofstream(config) << "{\"budgets\": 3}";
  refused({"sweep", "--config", config}, 2, {"unknown key \"budgets\"", "Did you mean budget"});
  std::ofstream(config) << "{\"chunk\": {}}";
  CHECK(kvscope_run({"sweep", "--config", config}).code == 2);
  std::ofstream(config) << "{\"chunk\": ";
  CHECK(kvscope_run({"sweep", "--config", config}).code == 3);
}

TEST_CASE("wrong sweeps end with one sentence and exit code 2") {
  const Recorded recorded;
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"sweep", recorded.trace, "--selector", "quets", "--budget", "16"}, "did you mean quest"},
      {{"sweep", recorded.trace, "--selector", "quest:pagesize=4", "--budget", "16"}, "page-size"},
      {{"sweep", recorded.trace, "--selector", "quest:page-size=0", "--budget", "16"}, "page-size"},
      {{"sweep", recorded.trace, "--selector", "quest", "--budget", "0"}, "at least 1"},
      {{"sweep", recorded.trace, "--selector", "quest", "--budget", "-4"}, "at least 1"},
      {{"sweep", recorded.trace, "--selector", "twilight", "--budget", "p=1.5"}, "(0, 1]"},
      {{"sweep", recorded.trace, "--selector", "quest"}, "budget"},
      {{"sweep", recorded.trace}, "--selector"},
      {{"sweep", "--selector", "full"}, "TRACE"},
      {{"sweep", recorded.trace, "--selector", "full", "--layers", "99"}, "layer"},
      {{"sweep", recorded.trace, "--selector", "full", "--heads", "99"}, "head"},
      {{"sweep", recorded.trace, "--selector", "full", "--chunk", "0"}, "chunk"},
      {{"sweep", recorded.trace, "--selector", "full", "--rows-per-chunk", "0"}, "rows-per-chunk"},
      {{"sweep", recorded.trace, "--selector", "full", "--resume"}, "--out"},
      {{"sweep", recorded.trace, "--selector", "full", "--out", "x.txt"}, ".csv"},
  };
  for (const auto& [words, part] : cases) refused(words, 2, {part});
  refused({"sweep", recorded.trace, "--selector", "full", "--overwrite", "--out", recorded.trace},
          3, {"it is not replaced"});
}

TEST_CASE("a bare share is no number of tokens, and the way to say it is told") {
  const Recorded recorded;
  for (const Words& command : {Words{"sweep", recorded.trace}, Words{"simulate", "perplexity"}}) {
    refused(with(command, {"--selector", "recent", "--budget", "0.1"}), 2,
            {"a share of the keys is ratio=0.1"});
  }
  ran({"sweep", recorded.trace, "--selector", "recent", "--budget", "ratio=0.1,0.5"});
}

TEST_CASE("selectors lists every method with its options") {
  const auto all = kvscope_run({"selectors", "--json"}).json().at("selectors");
  bool has_quest = false;
  for (const auto& one : all) {
    has_quest =
        has_quest || (one.at("name") == "quest" && one.at("presets").contains("quest-kernel"));
    CHECK(one.at("phases").size() > 0);
    CHECK(!one.at("source").get<std::string>().empty());
    CHECK(!one.at("family").get<std::string>().empty());
  }
  CHECK(has_quest);
  // the listing groups by family: headings in one order, each once, every method below its own
  const std::string text = kvscope_run({"selectors"}).out;
  const std::vector<std::string> in_order = {"controls and oracles",
                                             "\n  full ",
                                             "single keys by score",
                                             "\n  quoka ",
                                             "pages, blocks and chunks of keys by score",
                                             "\n  quest ",
                                             "presets: lserve, quest-frontier, quest-hub",
                                             "patterns of prefill",
                                             "\n  minference-a-shape ",
                                             "eviction for good",
                                             "\n  h2o "};
  std::size_t at = 0;
  for (const std::string& part : in_order) {
    INFO(part);
    const std::size_t found = text.find(part, at);
    REQUIRE(found != std::string::npos);
    at = found;
  }
  CHECK(text.find("eviction for good") == text.rfind("eviction for good"));
  CHECK_HAS(kvscope_run({"selectors", "quoka"}).out, "n-queries");
  // every word that a sweep takes: presets and wrappers too
  const auto moba = ran({"selectors", "moba"});
  CHECK_HAS(moba.out, "moba: a preset of blockmean with");
  CHECK(kvscope_run({"selectors", "moba", "--json"}).json().at("preset_of") == "blockmean");
  for (const auto& method : all) {
    for (const auto& [preset, sets] : method.at("presets").items()) {
      CHECK(kvscope_run({"selectors", preset, "--json"}).json().at("sets") == sets);
    }
  }
  CHECK(kvscope_run({"selectors", "coarsen", "--json"}).json().at("is_wrapper") == true);
  CHECK_HAS(kvscope_run({"selectors", "coarsen"}).out, "a wrapper");
  CHECK_HAS(kvscope_run({"selectors", "qoka"}).err, "did you mean quoka");
  CHECK(kvscope_run({"selectors", "qoka"}).code == 2);
}

}  // namespace kvscope::test::sweep_test
