// Every column of numbers that a command writes has a heading and a direction: a table made of it
// cannot mark the wrong method as best.
#include <set>

#include "notebooks_export/metric_info.hpp"
#include "tests/cli/run_program.hpp"

namespace kvscope::test::columns_test {

/// Names of the numbers in a report's rows.
void collect(const nlohmann::json& report, std::set<std::string>& columns) {
  REQUIRE(report.contains("rows"));
  REQUIRE(!report["rows"].empty());
  for (const auto& row : report["rows"]) {
    for (const auto& [key, value] : row.items()) {
      if (value.is_number() || value.is_boolean() || value.is_null()) columns.insert(key);
    }
  }
}

TEST_CASE("every column that any command writes is known by its whole name") {
  const std::string trace = recording(96, 4);
  const std::string draft = draft_recording(96, 4);
  const std::vector<Words> commands = {
      {"sweep", trace, "--selector", "full,quest,quoka", "--budget", "16", "--chunk", "16"},
      {"cost", trace, "--selector", "full,quest", "--budget", "16", "--hardware", "h200", "--chunk",
       "16"},
      {"cost", "--shape", "verifier", "--hardware", "h200", "--keys", "64", "--context", "4k"},
      {"cost", "--shape", "verifier", "--hardware", "h200", "--keys", "64", "--context", "4k",
       "--question", "tokens-per-second"},
      {"analyze", "quoka", trace, "--chunk", "16", "--budget", "16"},
      {"analyze", "theorem-b1", trace},
      {"analyze", "quest", trace},
      {"analyze", "layer-map", trace, draft},
      {"analyze", "geometry", trace},
      {"analyze", "query-selection", trace},
      {"analyze", "coverage", trace, "--draft", draft, "--selector", "quoka", "--budget", "16"},
      {"analyze", "heads", trace, "--budget", "16", "--chunk", "32"},
      {"analyze", "overlap", trace, "--budget", "16", "--chunk", "32"},
      {"ladder", trace, "--selector", "quest", "--budget", "32", "--rows", "2", "--chunk", "16"},
      {"simulate", "perplexity", "--selector", "full,quest", "--budget", "16", "--max-tokens",
       "48"},
      {"simulate", "retrieval", "--kinds", "multi_key", "--selector", "full,quoka", "--budget",
       "64", "--lengths", "96", "--depths", "1", "--by-depth", "--facts", "2", "--turns", "2"},
      {"simulate", "retrieval", "--kinds", "copy", "--protocol", "answer", "--selector", "quest",
       "--budget", "32", "--lengths", "64", "--steps", "4", "--depths", "1"},
      {"simulate", "speculative", "--budget", "16", "--selector", "full,quest", "--prompt", "48",
       "--n-new", "8", "--prompts", "1"},
      {"bench", "live", "--selector", "quoka", "--budget", "16", "--lengths", "64", "--repeat",
       "1"},
      {"bench", "select", "--selector", "quoka,quest", "--lengths", "256", "--phase", "decode",
       "--repeat", "1"}};
  std::set<std::string> columns;
  for (Words words : commands) {
    words.emplace_back("--json");
    collect(ran(words).json(), columns);
  }
  CHECK(columns.size() > 80);
  for (const std::string& column : columns) {
    INFO(column);
    CHECK(find_metric(column).has_value());
  }
  // what a part of a name used to decide
  CHECK(columns.contains("ttft_ratio"));
  CHECK(columns.contains("rows_with_zero_mass"));
  CHECK(columns.contains("mass_p05"));
  CHECK(!columns.contains("mass_p5"));
}

TEST_CASE("a simulation's JSON is drawn as its HDF5 is, and says the whole command") {
  const TempDir dir;
  const auto file = [&](const std::string& name) { return dir.file(name); };
  const Words needle = {"simulate", "retrieval", "--selector", "full,quoka",
                        "--budget", "ratio=0.5", "--lengths",  "96,128",
                        "--depths", "2",         "--trials",   "1"};
  const Words perplexity = {"simulate", "perplexity", "--selector",   "full,recent",
                            "--budget", "16",         "--max-tokens", "48"};
  for (const auto& [figure, command] :
       {std::pair<std::string, Words>{"needle", needle}, {"perplexity", perplexity}}) {
    for (const std::string ending : {".h5", ".json"}) {
      ran(with(command, {"--out", file(figure + ending), "--threads", "1"}));
      ran({"figure", figure, file(figure + ending), "--format", "svg", "--out",
           file(figure + ending + ".figures")});
    }
    CHECK(read_file(file(figure + ".h5.figures/" + figure + ".svg")) ==
          read_file(file(figure + ".json.figures/" + figure + ".svg")));
    const std::string manifest = read_file(file(figure + ".h5.figures/" + figure + ".json"));
    CHECK_THAT(manifest, has("--selector full") && !has("--threads"));
  }
  const auto manifest = read_file(file("needle.json.figures/needle.json"));
  CHECK_HAS(manifest,
            "kvscope simulate retrieval --selector full,quoka --budget "
            "ratio=0.5 --lengths 96,128 --depths 2 --trials 1",
            "Kind of prompt: passkey.", "Each cell: 1 prompt.");
}

TEST_CASE("a sweep says its whole command, whatever the threads were") {
  const std::string trace = recording(64);
  const auto run = ran({"sweep", trace, "--budget", "16,32", "--selector", "quest:page-size=8,full",
                        "--chunk", "16", "--layers", "2-3", "--threads", "1", "--json"});
  CHECK(run.json().at("command_line") ==
        "kvscope sweep trace.h5 --selector quest:page-size=8,full --budget tokens=16 --budget "
        "tokens=32 --phase prefill --chunk 16 --steps 16 --drafts 4 --rows-per-chunk 8 --layers "
        "2,3 --resamples 200 --seed 0");
}

}  // namespace kvscope::test::columns_test
