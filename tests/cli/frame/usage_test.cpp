// How the program answers wrong or odd command lines, and that help, manual and completions know
// every option.
#include <cstdlib>

#include "core/base/lists.hpp"
#include "tests/cli/recordings.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"

namespace kvscope::test::usage_test {

/// "analyze quest" and so on.
std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const auto& command : kvscope_run({"help", "--json"}).json())
    names.push_back(command.at("name"));
  return names;
}

TEST_CASE("no command at all is an error, with the overview") {
  CHECK(refused({}, 2, {"kvscope --help"}).out == kvscope_run({"--help"}).out);
}

TEST_CASE("the overview fits a screen, and names every command once, by question") {
  const auto run = ran({"--help"});
  CHECK(run.err.empty());
  CHECK(std::ranges::count(run.out, '\n') <= 72);
  std::size_t longest = 0, start = 0;
  for (std::size_t at; (at = run.out.find('\n', start)) != std::string::npos; start = at + 1)
    longest = std::max(longest, at - start);
  CHECK(longest <= 100);
  for (const std::string& name : command_names()) {
    INFO(name);
    const Words command = split_words(name, ' ');
    const bool is_whole = run.out.find("\n  " + name + " ") != std::string::npos;
    const bool is_kind = run.out.find("\n  " + command.front() + " KIND ") != std::string::npos &&
                         run.out.find(command.back()) != std::string::npos;
    CHECK(is_whole != is_kind);
  }
}

TEST_CASE("every command has a help with usage and options, by --help, -h and help") {
  for (const std::string& name : command_names()) {
    INFO(name);
    Words by_option = split_words(name + " --help", ' ');
    const auto run = ran(by_option);
    CHECK(run.err.empty());
    CHECK_HAS(run.out, "usage: kvscope " + name, "options:");
    by_option.back() = "-h";
    CHECK(kvscope_run(by_option).out == run.out);
    CHECK(kvscope_run(split_words("help " + name, ' ')).out == run.out);
  }
}

TEST_CASE("unknown commands, kinds and options get exit code 2 and a suggestion") {
  struct Case {
    std::vector<std::string> args;
    const char* expected;
  };
  for (const Case& c : std::initializer_list<Case>{
           {{"recrod"}, "Did you mean record?"},
           {{"analyze", "qoka"}, "Did you mean quoka?"},
           {{"analyze"}, "quoka, theorem-b1, quest, layer-map, geometry, query-selection"},
           {{"bench", "--json"}, "live"},
           {{"record", "--max-token", "5", "x.h5"}, "Did you mean --max-tokens?"},
           {{"--frobnicate"}, "unknown option --frobnicate"},
           {{"help", "recrod"}, "Did you mean record?"},
           {{"record", "--dtype", "f64", "x.h5"}, "f32, f16, bf16, auto, found \"f64\""},
           {{"record", "--chunk", "12x", "x.h5"}, "a whole number, found \"12x\""},
           {{"record", "--chunk", "0", "x.h5"}, "--chunk: expected at least 1"},
           {{"record", "--chunk"}, "chunk"},
           {{"record", "--chunk", "5", "--chunk", "6", "x.h5"}, "given twice"},
           {{"record", "a.h5", "b.h5"}, "unexpected argument \"b.h5\""},
           {{"record"}, "name the file"},
           {{"record", "--threads", "0", "x.h5"}, "[1, 1024]"},
           {{"record", "--layers", "5-3", "x.h5"}, "ranges like 0,3-5"},
           {{"record", "--layers", "0-99999999999", "x.h5"}, "ranges like 0,3-5"},
           {{"record", "--rows", "9:3", "x.h5"}, "A < B"},
           {{"record", "--capture", "atn", "x.h5"}, "Did you mean attn?"},
           {{"record", "--capture", "no-qkv,no-lse", "x.h5"}, "nothing is left"},
           {{"record", "--compression", "lz4", "x.h5"}, "gzip:N"},
           {{"record", "--text", "a", "--prompt", "b", "x.h5"}, "exclude each other"},
           {{"verify"}, "TRACE is missing"},
           {{"analyze", "layer-map", "a.h5"}, "DRAFT is missing"},
           {{"recover", "trace.h5"}, "--out"},
           {{"tokenize", "hello world"}, "options alone; a text itself is --prompt TEXT"},
           {{"record", "--tokens", "1024", "x.h5"}, "by --max-tokens 1024"},
           {{"record", "--tokens", "1024", "--text", "a", "x.h5"}, "by --max-tokens 1024"},
           {{"notebook", "s.csv"}, "\"s.csv\" stands where KIND is expected, one of"},
           {{"verify", "a.h5", "b.h5"}, "expected TRACE and options"},
           {{"completion", "tcsh"}, "one of bash, zsh, fish"},
           {{"analyze", "quest", "x.h5", "--page-size", "0"}, "page-size"},
           {{"version", "--arguments", "1"}, "unknown option"}}) {
    CHECK(refused(c.args, 2, {c.expected}).out.empty());
  }
}

TEST_CASE("version --json says what the program was made of") {
  const auto json = kvscope_run({"version", "--json"}).json();
  CHECK(json.at("version") == "0.1.0");
  CHECK(json.at("commit").is_string());
  CHECK(json.at("compiler").get<std::string>().size() > 3);
  CHECK(json.at("hdf5_version").get<std::string>().starts_with("1."));
  CHECK(json.at("hdf5_filters").dump().find("gzip") != std::string::npos);
  CHECK(json.at("vector_targets").size() >= 1);
  CHECK_HAS(kvscope_run({"--version"}).out, "kvscope 0.1.0");
}

TEST_CASE("a closed standard output is an error, a broken pipe is not, and neither harms a file") {
  RunSetup closed{.close_stdout = true};
  refused({"--help"}, 3, {"standard output"}, closed);

  RunSetup broken{.break_stdout = true};
  const auto quiet = ran({"--help"}, broken);
  CHECK(quiet.err.empty());

  const TempDir dir;
  const std::string trace = dir.file("t.h5");
  CHECK(kvscope_run({"record", "--model", "draft", "--max-tokens", "16", "--json", trace}, closed)
            .code == 3);
  ran({"verify", trace});
}

TEST_CASE("what is left out is guessed where there is one guess: a format, the user's shell") {
  const TempDir dir;
  const auto fish = ran({"completion"}, {"", {"SHELL=/usr/bin/fish"}});
  CHECK(fish.out == kvscope_run({"completion", "fish"}).out);
  refused({"completion"}, 2, {"one of bash, zsh, fish, and $SHELL says \"tcsh\""},
          {"", {"SHELL=/bin/tcsh"}});
  const std::string trace = dir.file("t.h5");
  const std::string page = dir.file("t.html");
  ran({"record", trace, "--model", "draft", "--max-tokens", "16"});
  ran({"export", trace, "--out", page});
  CHECK(read_file(page).starts_with("<!DOCTYPE html>"));
}

TEST_CASE("completions are valid scripts, which ask the program for what may stand next") {
  const TempDir dir;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto run = ran({"completion", shell});
    const auto script = dir.write(std::string("completion.") + shell, run.out);
    const std::string check = "command -v " + std::string(shell) + " >/dev/null || exit 0; " +
                              shell + " -n '" + script.string() + "'";
    CHECK(std::system(check.c_str()) == 0);
  }
  // What bash would offer after "kvscope analyze q" and "kvscope record --max".
  const std::string script = dir.file("completion.bash");
  const std::string ask =
      "PATH='" + testing::kvscope_program().parent_path().string() +
      "':$PATH bash -c '. \"$0\"; COMP_WORDS=(kvscope analyze q); COMP_CWORD=2; _kvscope; test "
      "\"${COMPREPLY[*]}\" = \"quoka quest query-selection\" && COMP_WORDS=(kvscope record --max); "
      "COMP_CWORD=2; _kvscope; test \"${COMPREPLY[*]}\" = --max-tokens' '" +
      script + "'";
  CHECK(std::system(ask.c_str()) == 0);
}

TEST_CASE("the manual page is there and names the environment") {
  const auto run = ran({"help", "--man"});
  CHECK(run.out.starts_with(".TH KVSCOPE 1"));
  CHECK_HAS(run.out, "KVSCOPE_DATA");
}

TEST_CASE("help --json tells every command's arguments and options, for programs") {
  const auto all = kvscope_run({"help", "--json"}).json();
  REQUIRE(all.is_array());
  const auto run = kvscope_run({"help", "--json", "analyze", "quest"}).json();
  REQUIRE(run.size() == 1);
  CHECK(run[0]["name"] == "analyze quest");
  CHECK(run[0]["arguments"][0]["name"] == "TRACE");
  CHECK(run[0]["arguments"][0]["required"] == true);
  bool has_progress = false;
  for (const auto& option : run[0]["options"]) {
    if (option["name"] != "progress") continue;
    has_progress = true;
    CHECK(option["choices"].size() == 5);
    CHECK(option["default"] == "auto");
  }
  CHECK(has_progress);
  CHECK(kvscope_run({"help", "--json", "nonsense"}).code == 2);
}

TEST_CASE("missing embedded models are explained") {
  RunSetup setup{.environment = {"KVSCOPE_DATA=/no/such/place"}};
  refused({"record", "x.h5"}, 3, {"/no/such/place"}, setup);
}

TEST_CASE("natural guesses are taken, or answered with the way") {
  const TempDir dir;
  const std::string trace = recording(64);
  const std::string out = dir.file("out");
  ran({"sweep", trace, "--selector", "quoka", "--budget", "1k", "--out", out + ".csv"});
  CHECK_HAS(ran({"sweep", trace, "--selector", "quoka", "--budget", "1M"}).out,
            "every key is kept, so that nothing was chosen");
  CHECK_HAS(ran({"sweep", trace, "--selector", "quoka", "--budget", "1M", "--json"}).err,
            "every key is kept, so that nothing was chosen");
  const std::vector<std::pair<Words, std::string>> guesses = {
      {{"sweep", trace, "--selector", "quoka", "--budget", "10%"}, "ratio=0.1"},
      {{"sweep", trace, "--methods", "quoka"}, "Did you mean --selector?"},
      {{"sweep", trace, "--quiet"}, "Did you mean --progress none?"},
      {{"sweep", trace, "--selector", "specattn", "--budget", "64"}, "but for decode"},
      {{"figure", out + ".csv"}, "is a CSV table, where NAME is expected"},
      {{"sweep", out + ".csv"}, "is a CSV table, where TRACE is expected, a trace of kvscope"},
      {{"table", trace}, "is a trace of kvscope, where PRESET|RESULT is expected"},
      {{"export", out + ".csv"}, "is a CSV table, where TRACE is expected"},
      {{"figure", "budget", out + ".csv", "--out", "a.jpg"}, "svg, pdf, png or tex"},
      {{"analyze", "quest", trace, "--out", out + ".json"}, "HDF5 is written: expected another"},
      {{"analyze", "quest", trace, "--csv", out + ".json"}, "a CSV table is written: expected"},
      {{"recover", trace, "--out", out + ".json"}, "a trace of kvscope is written: expected"},
      {{"cost", trace, "--hardware", "h200", "--selector", "full", "--out", out + ".h5"},
       "a JSON file of kvscope is written"},
      {{"figure", "budget", out + ".csv", "--dark"}, "Did you mean --theme dark?"}};
  for (const auto& [words, says] : guesses) refused(words, 2, {says});
  refused({"record", "--model", "gpt2", "--out", out + ".h5"}, 3, {"kvscope models lists"});
  ran({"figure", "budget", out + ".csv", "--venue", "NeurIPS", "--format", "svg", "--out", out});
  std::filesystem::copy_file(out + "/budget.svg", dir.file("budget.svg"));
  std::filesystem::copy_file(out + "/budget.json", dir.file("budget.json"));
  refused({"reproduce", dir.file("budget.svg")}, 2, {"budget.json"});
  refused({"reproduce", out + ".csv"}, 3, {"expected the manifest of a figure", "a CSV table"});
  refused({"figure", "budget", out + ".csv", "--out", dir.file("f.apng")}, 2,
          {"svg, pdf, png or tex"});
}

TEST_CASE("what went is answered with what to use instead") {
  const std::string trace = recording(64);
  const std::vector<std::pair<Words, std::string>> gone = {
      {{"merge", "a.csv", "b.csv"}, "--store DIR --worker on each machine"},
      {{"pareto"}, "kvscope figure pareto"},
      {{"story", "s.json"}, "kvscope export --html"},
      {{"analyze", "pruning", trace}, "kvscope analyze quest has the bounds"},
      {{"analyze", "ties", trace}, "kvscope ladder"},
      {{"simulate", "needle"}, "--kinds multi_key --facts 8"},
      {{"simulate", "ruler"}, "--kinds ruler"},
      {{"bench", "machine"}, "tests/bench"},
      {{"study", "work", "s.toml"}, "study run FILE --worker"},
      {{"record", "--split", "64M", "x.h5"}, "--layers 0-3 records some"},
      {{"record", "--n-tokens", "64", "x.h5"}, "Did you mean --max-tokens?"},
      {{"sweep", trace, "--shard", "1/2"}, "Did you mean --store DIR --worker?"},
      {{"sweep", trace, "--list-units"}, "kvscope info STORE"},
      {{"explain", "--answer"}, "always puts back"},
      {{"explain", "--tokens", "300"}, "Did you mean --lengths?"},
      {{"cost", "--check"}, "bench_ledger"},
      {{"export", "--frames", trace}, "kvscope export --html"},
      {{"--manual"}, "kvscope help --all"}};
  for (const auto& [words, says] : gone) refused(words, 2, {says});
  CHECK_HAS(ran({"help", "merge"}).out, "Instead of merge: the same command with --store DIR");
  refused({"help", "retreival"}, 2, {"Did you mean retrieval?"});
  CHECK(ran({"help", "live"}).out.find("went") == std::string::npos);  // an option's word alone
}

}  // namespace kvscope::test::usage_test
