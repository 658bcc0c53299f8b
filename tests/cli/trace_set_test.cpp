// kvscope record --split and commands on the manifest, run as a user runs them: the same numbers as
// on the single file.
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/cli/run_program.hpp"

namespace kvscope::test::trace_set_test {

/// One recording as a file and as a set.
struct Both {
  TempDir dir;
  std::string file = name("t.h5");
  std::string set = name("t.kvset");
  Both() {
    const Words base = {"--max-tokens", "120", "--decode", "4", "--capture", "stats,logits"};
    record(file, base);
    record(set, with(base, {"--split", "layers=3"}));
  }
  std::string name(const std::string& base) const { return dir.file(base); }
  static void record(const std::string& out, const Words& words) {
    ran(with({"record", out}, words));
  }
};

/// The report without what names the recording: its file, uuid and the command.
std::string numbers_of(nlohmann::json json, const Both& both) {
  for (const char* key : {"command_line", "config_hash"}) json.erase(key);
  if (json.contains("rows")) {
    for (auto& row : json.at("rows")) row.erase("config_hash");
  }
  std::string text = json.dump();
  const auto blank = [&](const std::string& word) {
    for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos;)
      text.replace(at, word.size(), "T");
  };
  for (const std::string& trace : {both.file, both.set}) {
    const auto info = kvscope_run({"info", trace, "--json"}).json();
    blank(info.at("uuid").get<std::string>());
    blank(trace);
    blank(fs::path(trace).filename().string());
  }
  return text;
}

TEST_CASE("commands on a trace set give the numbers of the single file, bit for bit") {
  const Both both;
  const auto info = kvscope_run({"info", both.set, "--json"}).json();
  CHECK(info.at("content_hash") ==
        kvscope_run({"info", both.file, "--json"}).json().at("content_hash"));
  CHECK(info.at("status") == "complete");
  CHECK(info.at("n_tokens") == 124);
  const std::vector<Words> commands = {
      {"sweep", "", "--selector", "quest,quoka,h2o", "--budget", "16,ratio=0.5"},
      {"analyze", "quoka", "", "--budget", "16"},
      {"analyze", "coverage", ""},
      {"analyze", "geometry", ""},
      {"cost", "", "--selector", "quest", "--budget", "16", "--hardware", "h200"}};
  for (const Words& command : commands) {
    INFO(command[0] << " " << command[1]);
    std::vector<std::string> numbers;
    for (const std::string& trace : {both.file, both.set}) {
      Words words = command;
      for (std::string& word : words) {
        if (word.empty()) word = trace;
      }
      words.push_back("--json");
      const auto run = ran(words);
      numbers.push_back(numbers_of(run.json(), both));
    }
    CHECK(numbers[0] == numbers[1]);
  }
  CHECK(kvscope_run({"verify", both.set, "--json"}).json().at("ok") == true);
  ran({"record", both.name("d.h5"), "--model", "draft", "--tokens", both.set, "--layers", "0"});
}

TEST_CASE("a set whose part is missing or cut ends what reads it with one sentence") {
  const Both both;
  const std::string part = both.name("t.layers-0-2.h5");
  REQUIRE(fs::exists(part));
  fs::resize_file(part, fs::file_size(part) - 8);
  for (int round = 0; round < 2; ++round) {
    for (const Words& words : {Words{"info", both.set}, Words{"analyze", "geometry", both.set},
                               Words{"sweep", both.set, "--selector", "quest", "--budget", "16"},
                               Words{"verify", both.set}}) {
      const auto run = kvscope_run(words);
      INFO(words[0] << ", round " << round << ": " << run.err);
      // What another part says as well is read there.
      if (round == 1 && words[0] == "info") {
        CHECK(run.code == 0);
        continue;
      }
      CHECK(run.code == 3);
      CHECK_HAS(run.out + run.err, "t.layers-0-2.h5");
    }
    fs::remove(part);
  }
}

TEST_CASE("record --split says what it expects") {
  const TempDir dir;
  const std::string set = dir.file("t.kvset");
  const std::string file = dir.file("t.h5");
  const auto said = [&](const Words& words) { return refused(words, 2, {}).err; };
  CHECK_HAS(said({"record", set}), "--split layers=K");
  CHECK_HAS(said({"record", file, "--split", "layers"}), ".kvset");
  for (const char* how : {"heads", "layers=0", "layers=", "layers=-1", "layers=x", "layer"})
    CHECK_HAS(said({"record", set, "--split", how}), "--split: expected layers");
}

TEST_CASE("no output takes the place of a part of a set that is read, and none of a calibration") {
  const Both both;
  const std::string first = both.name("t.layers-0-2.h5");
  const std::string before = testing::read_file(first);
  const Words sweep = {"sweep", both.set, "--selector", "quest", "--budget", "16", "--overwrite"};
  // Another set's part would have the name of the file that is read, or go away with an older set.
  const Words record = {"record", both.set, "--tokens", first, "--overwrite", "--split"};
  for (const Words& words :
       {Words{"analyze", "quest", both.set, "--out", first, "--overwrite"},
        Words{"analyze", "quest", both.set, "--csv", first, "--overwrite"},
        with(sweep, {"--out", first}), with(record, {"layers=3"}), with(record, {"layers=1"}),
        Words{"sweep", both.file, "--selector", "quest", "--budget", "16", "--overwrite",
              "--calibration", first, "--out", first}}) {
    refused(words, 2, {"is the input"});
    CHECK((testing::read_file(first) == before));
  }
  const Words base = {"record", both.set, "--max-tokens", "32", "--split"};
  CHECK(kvscope_run(with(base, {"layers=3"})).code == 3);
  fs::remove(both.set);
  refused(with(base, {"layers=3"}), 3, {"t.layers-0-2.h5 exists; --overwrite replaces it"});
}

TEST_CASE("a killed recording of a set is recovered, up to the last unit that all parts have") {
  const TempDir dir;
  const std::string set = dir.file("t.kvset");
  RunningProgram program(
      {"record", set, "--split", "layers", "--max-tokens", "24000", "--chunk", "64", "--yes"});
  using namespace std::chrono;
  const auto until = steady_clock::now() + seconds(60);
  int n_seen = 0;
  while (n_seen < 3 && steady_clock::now() < until && program.is_running()) {
    const auto info = kvscope_run({"info", set + ".part", "--json"});
    if (info.code == 0) n_seen = std::max(n_seen, info.json().at("n_units").get<int>());
    std::this_thread::sleep_for(milliseconds(20));
  }
  program.send(SIGKILL);
  program.wait();
  REQUIRE(n_seen >= 3);
  CHECK(kvscope_run({"info", set}).code == 3);
  refused({"analyze", "geometry", set + ".part"}, 3, {"kvscope recover"});
  const auto recovered = ran({"recover", set + ".part", "--json"});
  CHECK(recovered.json().at("n_units") >= n_seen);
  ran({"verify", set});
  CHECK(kvscope_run({"info", set, "--json"}).json().at("status") == "recovered");
}

}  // namespace kvscope::test::trace_set_test
