// Results say what they were made from, and whether that was computed in f32.
#include "tests/cli/run_program.hpp"

namespace kvscope::test::inputs_and_formats_test {

const std::string kSentence = "Computed with products in bf16-portable";

TEST_CASE("what is made of a recording in bf16 says so: info, sweeps, analyses, figures, tables") {
  const TempDir dir;
  const auto file = [&](const std::string& name) { return dir.file(name); };
  const auto trace = file("bf16.h5");
  ran({"record", trace, "--max-tokens", "120", "--matmul", "bf16-portable"});
  CHECK_HAS(kvscope_run({"info", trace}).out, kSentence);
  CHECK(kvscope_run({"info", trace, "--json"}).json().at("matmul") == "bf16-portable");
  CHECK(!kvscope_run({"info", recording(96), "--json"}).json().contains("matmul"));

  const Words sweep = {"sweep", trace, "--selector", "quest", "--budget", "16", "--chunk", "32"};
  CHECK_HAS(ran(with(sweep, {"--out", file("s.h5")})).out, kSentence);
  CHECK_HAS(kvscope_run({"info", file("s.h5")}).out, kSentence);
  ran(with(sweep, {"--out", file("s.csv")}));
  CHECK_THAT(read_file(file("s.csv")),
             has(",matmul,") && has(",bf16-portable,") && !has("kv_dtype"));
  const auto json = kvscope_run(with(sweep, {"--json"})).json();
  for (const auto& row : json.at("rows")) CHECK(row.at("matmul") == "bf16-portable");
  CHECK_HAS(kvscope_run({"table", file("s.h5"), "--rows", "selector", "--value", "mass_mean"}).out,
            kSentence);
  CHECK_HAS(kvscope_run({"figure", "budget", file("s.h5"), "--out", file("f")}).err, kSentence);

  // Each row says how its own trace was made.
  Words both = with(sweep, {"--json"});
  both.insert(both.begin() + 1, recording(96));
  const auto mixed = kvscope_run(both).json();
  for (const auto& row : mixed.at("rows"))
    CHECK(row.at("matmul") == (row.at("trace") == "bf16.h5" ? "bf16-portable" : "f32"));

  const auto analysed =
      kvscope_run({"analyze", "quest", trace, "--out", file("q.h5"), "--csv", file("q.csv")});
  CHECK_HAS(analysed.out, kSentence);
  CHECK_HAS(read_file(file("q.csv")), "bf16-portable");
  CHECK_HAS(kvscope_run({"info", file("q.h5")}).out, kSentence);
  const auto report = kvscope_run({"analyze", "quest", trace, "--json"}).json();
  CHECK(report.at("config").at("matmul") == "bf16-portable");
  CHECK(report.at("rows").at(0).at("matmul") == "bf16-portable");
  CHECK_THAT(kvscope_run({"analyze", "quest", recording(96)}).out, !has("Computed"));
}

TEST_CASE("what is made of a recording that is stored in 16 bits says so") {
  const TempDir dir;
  const auto file = [&](const std::string& name) { return dir.file(name); };
  const auto trace = file("f16.h5");
  ran({"record", trace, "--max-tokens", "120", "--dtype", "f16"});
  const std::string sentence = "Recorded in f16: choices and numbers are not those of f32.";
  const std::string moved = "Recorded in f16, which moved scores by at most 0.";
  CHECK_HAS(kvscope_run({"info", trace}).out, moved);
  const Words sweep = {"sweep",    recording(96), trace,     "--selector", "quest",
                       "--budget", "16",          "--chunk", "32"};
  const auto out = file("s.csv");
  CHECK_HAS(kvscope_run(with(sweep, {"--out", out})).out, moved);
  CHECK_HAS(read_file(out), ",recorded,", ",f16,");

  // Of a table too, which has no configuration and no longer the size.
  CHECK_HAS(kvscope_run({"figure", "budget", out, "--out", file("f")}).err, sentence);
  // A mean over both is of neither; side by side they may stand.
  const Words table = {"table", out, "--value", "mass_mean", "--where", "layer=0"};
  refused(with(table, {"--rows", "selector"}), 2, {"differ in recorded"});
  CHECK_HAS(ran(with(table, {"--rows", "trace"})).out, sentence + " (1 of 2 rows)");

  CHECK_HAS(kvscope_run({"analyze", "heads", trace}).out, moved);
  CHECK_HAS(kvscope_run({"explain", trace, "--layers", "1", "--heads", "0", "--query", "80",
                         "--selector", "quest", "--budget", "8"})
                .out,
            moved);
}

TEST_CASE("results name their inputs with the hashes that are known") {
  const TempDir dir;
  const auto file = [&](const std::string& name) { return dir.file(name); };
  const auto trace = recording(120, 4);
  const auto hash = kvscope_run({"info", trace, "--json"}).json().at("content_hash");
  const Words sweep = {"sweep", trace, "--selector", "quest", "--budget", "16", "--chunk", "32"};
  ran(with(sweep, {"--out", file("s.h5")}));
  const auto json = kvscope_run(with(sweep, {"--json"})).json().at("inputs");
  REQUIRE(json.size() == 1);
  CHECK(json.at(0).at("what") == "trace");
  CHECK(json.at(0).at("hash") == hash);
  CHECK(kvscope_run({"info", file("s.h5"), "--json"}).json().at("inputs") == json);
  CHECK_HAS(kvscope_run({"info", file("s.h5")}).out, "trace ", hash.get<std::string>());

  const auto analysed = kvscope_run({"analyze", "quest", trace, "--json"}).json().at("inputs");
  CHECK(analysed.at(0).at("hash") == hash);
  CHECK(analysed.at(0).at("name") == trace);

  const auto live = kvscope_run({"simulate", "perplexity", "--max-tokens", "48", "--selector",
                                 "quest", "--budget", "8", "--json"})
                        .json();
  const auto& inputs = live.at("inputs");
  CHECK(inputs.at(0).at("what") == "model");
  CHECK(inputs.at(0).at("hash") == live.at("config").at("model_hash"));
  CHECK(inputs.back().at("what") == "text");
  CHECK(inputs.back().at("hash") == live.at("config").at("text_checksum"));
}

TEST_CASE("results name every file that an option names, with a hash of its contents") {
  const TempDir dir;
  const auto file = [&](const std::string& name) { return dir.file(name); };
  const auto trace = recording(96);
  ran({"fit", "kascade", trace, "--out", file("map.json")});
  ran({"record", file("d.h5"), "--model", "draft", "--tokens", trace});
  ran({"record", file("c.h5"), "--max-tokens", "64"});
  const std::string kascade = "kascade:map=" + file("map.json");
  const auto whats = [](const nlohmann::json& report) {
    std::vector<std::string> list;
    for (const auto& input : report.at("inputs")) {
      CHECK(input.contains("hash"));
      list.push_back(input.at("what"));
    }
    return list;
  };
  using List = std::vector<std::string>;
  CHECK(whats(kvscope_run({"sweep", trace, "--draft", file("d.h5"), "--calibration", file("c.h5"),
                           "--selector", kascade, "--budget", "16", "--chunk", "32", "--json"})
                  .json()) == List{"trace", "draft trace", "calibration trace", "artifact"});
  CHECK(whats(kvscope_run(
                  {"analyze", "coverage", trace, "--selector", kascade, "--budget", "16", "--json"})
                  .json()) == List{"trace", "artifact"});
  CHECK(whats(kvscope_run({"analyze", "layer-map", trace, file("d.h5"), "--json"}).json()) ==
        List{"trace", "trace"});

  const auto examples = dir.write(
      "e.json",
      R"({"context":"The key is 4711.","question":"What is the key?","answer_prefix":" The key is",)"
      R"("answer":["4711"],"max_new_tokens":2})"
      "\n");
  const auto live =
      kvscope_run({"simulate", "retrieval", "--model", "draft", "--examples", examples.string(),
                   "--lengths", "96", "--selector", "full", "--json"});
  INFO(live.err);
  CHECK(whats(live.json()) == List{"model", "text", "examples"});
}

}  // namespace kvscope::test::inputs_and_formats_test
