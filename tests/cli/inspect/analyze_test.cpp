// kvscope analyze, bench and tokenize, run as a user runs them.
#include "tests/cli/run_program.hpp"

namespace kvscope::test::analyze_test {

const std::vector<std::string> kKinds = {"quoka",    "theorem-b1",      "quest", "layer-map",
                                         "geometry", "query-selection", "heads"};

struct Pair {
  TempDir dir;
  std::string verifier = recording(160, 4);
  std::string draft = draft_recording(160, 4);

  std::vector<std::string> command(const std::string& kind,
                                   std::vector<std::string> more = {}) const {
    const Words files = kind == "layer-map" ? Words{verifier, draft} : Words{verifier};
    return with(with({"analyze", kind}, files), more);
  }
};

TEST_CASE("the analyses print a table, JSON or CSV, and write their arrays") {
  const Pair pair;
  for (const std::string& kind : kKinds) {
    INFO(kind);
    const auto table = ran(pair.command(kind));
    CHECK(table.err.empty());
    CHECK(table.out.starts_with("layer"));
    CHECK_HAS(table.out, "\n" + kind + ": ");  // the headline

    const fs::path out = pair.dir.path() / (kind + ".h5");
    const auto json = kvscope_run(pair.command(kind, {"--json", "--out", out.string()})).json();
    CHECK(json.at("kind") == kind);
    CHECK(json.at("layers").size() == 8);
    CHECK(json.at("totals").is_object());
    CHECK(json.at("options").is_object());
    CHECK(json.at("result_file") == out.string());

    const auto info = kvscope_run({"info", out.string(), "--json"}).json();
    CHECK(info.at("what") == "result");
    CHECK(info.at("kind") == kind);
    CHECK(info.at("arrays").size() > 3);
    CHECK(info.at("trace_uuids").size() == (kind == "layer-map" ? 2u : 1u));
    ran({"info", out.string()});

    CHECK_HAS(ran(pair.command(kind, {"--out", out.string()})).err, "is complete");
    ran(pair.command(kind, {"--out", out.string(), "--overwrite"}));

    const auto csv = ran(pair.command(kind, {"--csv", "-"}));
    CHECK(csv.out.starts_with("layer,"));
    CHECK(std::ranges::count(csv.out, '\n') == 9);
  }
}

TEST_CASE(
    "the serving ladder prints its levels, writes arrays and is drawn, whatever the threads") {
  const Pair pair;
  const auto ladder = [&](const std::string& out, const std::string& threads) {
    return ran({"ladder", pair.verifier, "--selector", "quest", "--budget", "32", "--rows", "3",
                "--chunk", "16", "--out", pair.dir.file(out), "--threads", threads, "--json"})
        .json();
  };
  auto report = ladder("one.h5", "1");
  const auto overlap =
      ran({"analyze", "overlap", pair.verifier, "--selector", "quest:dense-layers=2,streamingllm",
           "--budget", "32", "--chunk", "16", "--json"});
  CHECK(overlap.json().at("layers").at(1).at("jaccard").is_null());
  CHECK(overlap.json().at("layers").at(2).at("jaccard").is_number());
  CHECK(report.at("rows").size() == 17);
  CHECK(report.at("rows")[4].at("refused") == "quest chooses in pages of 16");
  auto many = ladder("many.h5", "3");
  CHECK(report.at("rows") == many.at("rows"));
  CHECK(report.at("layers") == many.at("layers"));
  const auto table = kvscope_run({"ladder", pair.verifier, "--selector", "quest", "--budget", "32",
                                  "--rows", "3", "--chunk", "16"});
  CHECK_HAS(table.out, "one list for all heads", "not taken: quest chooses in pages of 16",
            "\nladder: quest keeps");
  ran({"figure", "ladder", pair.dir.file("one.h5"), "--out", pair.dir.path().string()});
  CHECK(fs::exists(pair.dir.path() / "ladder.svg"));
  CHECK(kvscope_run({"ladder", pair.verifier, "--budget", "32"}).code == 2);
  refused({"ladder", pair.verifier, "--budget", "32", "--selector", "quest,quoka"}, 2,
          {"a ladder is of one method, found \"quest,quoka\""});
  CHECK(kvscope_run({"ladder", pair.verifier, "--selector", "quest"}).code == 2);
}

TEST_CASE("geometry and query-selection look at the layers and heads that are asked for") {
  const Pair pair;
  for (const std::string kind : {"geometry", "query-selection"}) {
    INFO(kind);
    const auto json =
        kvscope_run(pair.command(kind, {"--layers", "2,4-5", "--heads", "3", "--json"})).json();
    REQUIRE(json.at("layers").size() == 3);
    CHECK(json.at("layers").at(1).at("layer") == 4);
    CHECK(json.at("options").at("heads") == std::vector<int>{3});
    struct Case {
      std::vector<std::string> words;
      const char* expected;
    };
    for (const Case& c : std::initializer_list<Case>{
             {{"--layers", "8"}, "layer 8 was not recorded"},
             {{"--heads", "0,99"}, "query head 99 was not recorded"},
             {{"--layers", "a-b"}, "expected numbers and ranges"},
             {{"--chunk", "0"}, "chunk: expected at least"},
             {{kind == "geometry" ? "--max-points" : "--queries", "0"}, "expected at least 1"},
             {{kind == "geometry" ? "--basis" : "--control", "both"}, "expected one of"}}) {
      CHECK(refused(pair.command(kind, c.words), 2, {c.expected}).out.empty());
    }
  }
}

TEST_CASE("a trace of one token has nothing to correlate, and says so") {
  const TempDir dir;
  const std::string one = dir.file("one.h5");
  ran({"record", one, "--model", "draft", "--max-tokens", "1"});
  const auto geometry =
      kvscope_run({"analyze", "geometry", one, "--basis", "keys", "--json"}).json();
  CHECK(geometry.at("totals").at("explained_first").is_null());
  CHECK(geometry.at("totals").at("q_norm_mean") > 0);
  const auto selection = kvscope_run({"analyze", "query-selection", one, "--json"}).json();
  CHECK(selection.at("totals").at("prompt_pearson_log").is_null());
  const auto table = ran({"analyze", "query-selection", one});
  CHECK_HAS(table.out, "Pearson -");
}

TEST_CASE("a budget that covers a recording measures nothing, and says so") {
  const std::string trace = recording(160);
  const auto covered = ran({"analyze", "quoka", trace, "--budget", "1024"});
  CHECK_HAS(covered.out, "nothing is left out, so nothing is measured", "smaller --budget");
  const auto cut = kvscope_run({"analyze", "quoka", trace, "--budget", "32", "--chunk", "32"});
  CHECK_HAS(cut.out, "kept keys hold");
}

TEST_CASE("traces that an analysis cannot use are refused in one line") {
  const Pair pair;
  const std::string other = pair.dir.file("other.h5");
  ran({"record", other, "--model", "draft", "--prompt", "another text"});
  auto run = kvscope_run({"analyze", "layer-map", pair.verifier, other});
  INFO(run.err);
  CHECK((run.code == 2 || run.code == 3));
  CHECK(run.err_is_one_line());

  const std::string rows = pair.dir.file("rows.h5");
  ran({"record", rows, "--model", "draft", "--max-tokens", "32", "--rows", "16:32"});
  run = kvscope_run({"analyze", "theorem-b1", rows});
  INFO(run.err);
  CHECK((run.code == 2 || run.code == 3));
  CHECK(run.err_is_one_line());

  const std::string whole = read_file(pair.verifier);
  const auto cut = pair.dir.write("cut.h5", whole.substr(0, whole.size() - 5000)).string();
  for (const std::string kind : {"quoka", "theorem-b1", "quest", "geometry", "query-selection"}) {
    run = kvscope_run({"analyze", kind, cut, "--out", pair.dir.file("r.h5")});
    INFO(kind << " " << run.err);
    CHECK(run.code == 3);
    CHECK(run.out.empty());
    CHECK_FALSE(fs::exists(pair.dir.path() / "r.h5"));
  }
  CHECK(kvscope_run({"analyze", "quest", "/no/such/file.h5"}).code == 3);
}

TEST_CASE("tokenize gives ids and pieces, and turns ids back into text") {
  const std::string text = "Hello, 42 whales! \xc3\xa9\n";
  RunSetup setup{.input = text};
  const auto json = kvscope_run({"tokenize", "--text", "-", "--json"}, setup).json();
  CHECK(json.at("n") == json.at("ids").size());
  CHECK(json.at("pieces").size() == json.at("ids").size());
  const auto plain = ran({"tokenize", "--text", "-"}, setup);
  std::string ids;
  for (int id : json.at("ids")) {
    if (!ids.empty()) ids += ' ';
    ids += std::to_string(id);
  }
  CHECK(plain.out == ids + "\n");
  // nobody has to say that standard input is meant; without text there it is no book's
  CHECK(kvscope_run({"tokenize"}, setup).out == plain.out);
  refused({"tokenize"}, 2, {"standard input is empty"});
  CHECK(kvscope_run({"tokenize", "--decode", ids}).out == text + "\n");
  CHECK(kvscope_run({"tokenize", "--decode", ids, "--json"}).json().at("text") == text);
  CHECK(kvscope_run({"tokenize", "--decode", "999999"}).code == 2);
  CHECK(kvscope_run({"tokenize", "--text", "/no/such/file"}).code == 3);
  CHECK(kvscope_run({"tokenize", "--prompt", "", "--json"}).json().at("n") == 0);
}

TEST_CASE("bench live times the plain model alone, and decode steps") {
  const auto json = kvscope_run({"bench", "live", "--model", "draft", "--lengths", "64,96",
                                 "--steps", "4", "--repeat", "2", "--threads", "1", "--json"})
                        .json();
  CHECK(json.at("bench") == "live");
  CHECK(json.at("threads") == 1);
  REQUIRE(json.at("rows").size() == 2);
  for (const auto& row : json.at("rows")) {
    CHECK(row.at("method") == "dense");
    CHECK(row.at("ttft_seconds") > 0);
    CHECK(row.at("step_seconds") > 0);
    CHECK(row.at("step_seconds_low") <= row.at("step_seconds_high"));
  }
}

}  // namespace kvscope::test::analyze_test
