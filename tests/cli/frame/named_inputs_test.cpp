// Inputs that only an option, a method or a model names: no output takes the place of one.
#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"

namespace kvscope::test::named_inputs_test {

TEST_CASE("no command writes over what one of its options names") {
  const TempDir dir;
  const auto file = [&](const std::string& name) { return dir.file(name); };
  const std::string trace = recording(64);
  const std::string model = file("m");
  fs::copy(testing::source_dir() / "traces/samples/draft", model);
  ran({"fit", "kascade", trace, "--out", file("a.json")});
  fs::copy_file(file("a.json"), file("a.csv"));
  const fs::path hardware =
      dir.write("hw.json", read_file(testing::source_dir() / "analysis/cost/data/h200.json"));
  const fs::path examples =
      dir.write("e.json",
                "{\"context\":\"The grass is green. The key is 4711.\",\"question\":\"What is the "
                "key?\",\"answer_prefix\":\" The key is\",\"answer\":[\"4711\"],"
                "\"max_new_tokens\":2}\n");
  const std::string map = "kascade:map=" + file("a.json");
  const std::vector<std::pair<std::string, Words>> tries = {
      {file("a.json"),
       {"sweep", trace, "--selector", map, "--budget", "8", "--resamples", "5", "--overwrite"}},
      {file("a.json"),
       {"cost", trace, "--selector", map, "--budget", "8", "--hardware", "h200", "--overwrite"}},
      {file("hw.json"),
       {"sweep", trace, "--selector", "quest", "--budget", "8", "--resamples", "5", "--hardware",
        hardware.string(), "--overwrite"}},
      {file("hw.json"),
       {"cost", trace, "--selector", "quest", "--budget", "8", "--hardware", hardware.string(),
        "--overwrite"}},
      {file("e.json"),
       {"simulate", "retrieval", "--model", model, "--examples", examples.string(), "--lengths",
        "96", "--selector", "full", "--overwrite"}},
      {model + "/tokenizer.json", {"record", "--model", model, "--max-tokens", "8", "--overwrite"}},
      {model + "/model.safetensors",
       {"record", "--model", model, "--max-tokens", "8", "--overwrite"}},
      {model + "/config.json",
       {"simulate", "perplexity", "--model", model, "--max-tokens", "32", "--offset", "0",
        "--windows", "1", "--selector", "full", "--overwrite"}}};
  for (const auto& [input, command] : tries) {
    const std::string before = read_file(input);
    const RunResult run = kvscope_run(with(command, {"--out", input}));
    const bool is_other_kind = run.err.find("it is not replaced") != std::string::npos;
    CHECK(run.code == (is_other_kind ? 3 : 2));
    CHECK((is_other_kind || run.err.find("it is the input") != std::string::npos));
    CHECK(read_file(input) == before);
  }
  const std::string before = read_file(file("a.csv"));
  const RunResult coverage =
      kvscope_run({"analyze", "coverage", trace, "--selector", "kascade:map=" + file("a.csv"),
                   "--budget", "8", "--overwrite", "--csv", file("a.csv")});
  INFO(coverage.err);
  CHECK(coverage.code == 3);
  CHECK_HAS(coverage.err, "it is not replaced");
  CHECK(read_file(file("a.csv")) == before);
  for (const auto& entry : fs::recursive_directory_iterator(dir.path()))
    CHECK(entry.path().extension() != ".part");
}

}  // namespace kvscope::test::named_inputs_test
