// Where the door leads: questions find commands, names find what they name, files say what takes
// them.
#include <fstream>
#include <sstream>

#include "tests/cli/recordings.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"

namespace kvscope::test::help_test {

Words split(const std::string& text, char at) {
  std::istringstream in(text);
  Words parts;
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

/// The commands that `kvscope help` of these words lists, best first.
Words answers(const std::string& question) {
  const Words words = split(question, ' ');
  const auto run = kvscope_run(with({"help"}, words));
  if (run.out.starts_with("kvscope ")) return {run.out.substr(8, run.out.find(':') - 8)};
  Words commands;
  const Words lines = split(run.out, '\n');
  for (std::size_t i = 1; i < lines.size() && lines.front() == "commands" && !lines[i].empty(); ++i)
    if (lines[i][2] != ' ') commands.push_back(lines[i].substr(2, lines[i].find("  ", 2) - 2));
  return commands;
}

// Written by somebody who knew the list of commands alone, before there were synonyms.
TEST_CASE("of 100 questions of users at least 90 find their command among the first three") {
  std::ifstream in(testing::source_dir() / "tests" / "cli" / "questions.txt");
  int n = 0, n_found = 0;
  for (std::string line; std::getline(in, line); ++n) {
    const Words parts = split(line, '|');
    const Words right = split(parts.at(1), ';');
    Words first = answers(parts.at(0));
    first.resize(std::min<std::size_t>(first.size(), 3));
    n_found += std::ranges::find_first_of(first, right) != first.end() ? 1 : 0;
  }
  CHECK(n == 100);
  CHECK(n_found >= 90);
}

TEST_CASE("help names options, figures, methods and columns too, and says where nothing is") {
  CHECK_HAS(ran({"help", "past-end"}).out, "options", "--past-end", "of record");
  CHECK_HAS(ran({"help", "pareto"}).out, "figures (kvscope figures NAME)", "pareto");
  CHECK_HAS(ran({"help", "snapkv"}).out, "methods (kvscope selectors NAME)", "snapkv");
  CHECK_HAS(ran({"help", "Mass", "mean"}).out, "columns of tables", "Attention kept");
  refused({"help", "zebra"}, 2, {"nothing is about \"zebra\""});
}

TEST_CASE("a file's name alone says what the file is, and what takes it") {
  const TempDir dir;
  const std::string trace = recording(96);
  CHECK_HAS(ran({trace}).out, "is a recording of", "96 tokens", "kvscope sweep",
            "kvscope-explorer");
  const std::string result = dir.file("q.h5");
  ran({"analyze", "quest", trace, "--out", result});
  CHECK_HAS(ran({result}).out, "is a result: ", "kvscope figure quest-bounds", "explorer");
  const std::string table = dir.file("s.csv");
  ran({"sweep", trace, "--selector", "quest", "--budget", "16,32", "--out", table});
  CHECK_HAS(ran({table}).out, "is a table", "kvscope figure budget ");
  CHECK_HAS(ran({dir.write("t.txt", "words of a text").string()}).out, "is a text",
            "kvscope record trace.h5 --max-tokens 4096 --text");
  refused({dir.write("s.toml", "[tool]\nx = 1\n").string()}, 2, {"s.toml", "unknown key"});
  refused({dir.file("none.h5")}, 2, {"none.h5", "no file of that name"});
  const auto file = [&](const char* name, std::string_view bytes) {
    return dir.write(name, bytes).string();
  };
  const std::vector<std::pair<std::string, std::string>> files = {
      {file("empty.h5", ""), "is an empty file. No command takes it."},
      {file("latin.txt", "caf\xe9 au lait"), "not in UTF-8"},
      {file("blob.npy", std::string_view("\x93NUMPY\0\0", 8)),
       "a file of another kind. No command takes it."},
      {file("ids.json", R"({"ids": [1, 2, 3]})"), "--tokens"},
      {file("list.json", "[1, 2]"), "--tokens"},
      {file("p.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>"), "No command takes it"},
      {file("config.json", R"({"model_type": "llama"})"), "kvscope cost --shape"},
      {file("other.json", R"({"kind": "Pod"})"), "a JSON file without rows"},
      {file("s.json", R"({"kind": "kvscope-session", "version": 1})"),
       "kvscope-explorer --session"},
      {file("book.kvset", R"({"kvscope": "set"})"), "each file of a set opens by itself"},
      {file("examples.jsonl", "{\"context\": \"a\"}\n{\"context\": \"b\"}\n"), "--examples"}};
  for (const auto& [name, says] : files) CHECK_HAS(ran({name}).out, says);
  std::filesystem::create_directory(dir.path() / "lora");
  refused({dir.write("lora/adapter_config.json", "{}").parent_path().string()}, 3,
          {"merge_and_unload()"});
  refused({table, "--json"}, 2, {"it is a file"});
}

}  // namespace kvscope::test::help_test
