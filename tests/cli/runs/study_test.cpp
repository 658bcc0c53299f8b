// Studies: what is asked again is not computed again, failures stand apart, wrong files are refused
// with their line.
#include <unistd.h>

#include <csignal>

#include "core/base/lists.hpp"
#include "tests/cli/run_program.hpp"

namespace kvscope::test::study_test {

constexpr const char* kSmall = R"(models = ["verifier", "draft"]
texts = ["book"]
methods = ["quest", "streamingllm", "recent"]
budgets = [16, 32]
[record]
max-tokens = 96
[tasks.sweep]
chunk = 32
[tasks.perplexity]
max-tokens = 48
offset = 0
)";

/// A folder with a study file.
struct Bench {
  TempDir dir;
  std::string study = file("small.toml");
  std::string store = file("study-store");

  explicit Bench(const std::string& text = kSmall) { write(text); }
  std::string file(const std::string& name) const { return dir.file(name); }
  void write(const std::string& text) const { std::ofstream(study) << text; }
  RunResult run(const Words& more = {}) const {
    return kvscope_run(with({"study", "run", study}, more));
  }
  RunResult done(const Words& more = {}) const { return ran(with({"study", "run", study}, more)); }
  /// A number of the plan.
  int plan(const std::string& field) const {
    return kvscope_run({"study", "plan", study, "--json"}).json().at(field).get<int>();
  }
  std::string table() const { return kvscope_run({"study", "table", study}).out; }
  /// Lines of the store: each item that was computed has one.
  std::size_t n_lines() const {
    std::size_t n = 0;
    for (const auto& segment : fs::directory_iterator(store + "/answers")) {
      const std::string text = read_file(segment.path());
      n += static_cast<std::size_t>(std::ranges::count(text, '\n')) - 1;
    }
    return n;
  }
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST_CASE("a study computes each item once, whoever asks, and in any process") {
  const Bench bench;
  CHECK(bench.plan("items") == 2 + 2 * 12);
  CHECK(bench.plan("to_do") == 26);
  const RunResult first = bench.done({"--engine", "local", "--workers", "2"});
  CHECK_HAS(first.out, "26 known (26 new in the store), 0 failed");
  CHECK(bench.n_lines() == 26);
  const std::string table = bench.table();
  CHECK(std::ranges::count(table, '\n') == 1 + 24);

  CHECK_HAS(bench.run().out, "(0 new in the store)");
  CHECK(bench.n_lines() == 26);

  // A method more: its own items alone, and recordings that nobody deleted.
  bench.write(replaced(kSmall, "\"recent\"", "\"recent\", \"h2o\""));
  CHECK(bench.plan("to_do") == 8);
  CHECK_HAS(bench.run().out, "34 known (8 new in the store)");

  // Other names of the same: another file, list and model.
  fs::create_directory(bench.file("other"));
  std::string other = replaced(kSmall, "[\"verifier\", \"draft\"]", "[\"draft\"]");
  other = replaced(other, "[tasks.perplexity]", "[tasks.ppl]\ncommand = \"perplexity\"");
  other = replaced(other, "[record]", "store = \"../study-store\"\n[record]");
  std::ofstream(bench.file("other/b.toml")) << other;
  const auto plan = kvscope_run({"study", "plan", bench.file("other/b.toml"), "--json"}).json();
  CHECK(plan.at("items") == 13);
  CHECK(plan.at("to_do") == 0);

  // The same numbers as the command by itself.
  const RunResult alone =
      kvscope_run({"simulate", "perplexity", "--model", "draft", "--max-tokens", "48", "--offset",
                   "0", "--selector", "full,quest", "--budget", "16", "--json"});
  const auto row = alone.json().at("rows").at(1);
  const RunResult json = kvscope_run({"study", "table", bench.study, "--format", "json"});
  const auto rows = json.json();
  const auto same = std::ranges::find_if(rows, [&](const auto& one) {
    return one.at("model") == "draft" && one.at("task") == "perplexity" &&
           one.at("method") == "quest" && one.at("budget") == "tokens=16";
  });
  REQUIRE(same != rows.end());
  CHECK(same->at("perplexity") == row.at("perplexity"));
  CHECK(same->at("relative_increase") == row.at("relative_increase"));
}

TEST_CASE("a study that is killed goes on where it was, and several runs share its store") {
  const Bench whole;
  whole.done();
  const Bench bench;
  for (const int signal : {SIGKILL, SIGINT, SIGKILL}) {
    RunningProgram run({"study", "run", bench.study, "--engine", "local", "--workers", "2"});
    usleep(400'000);
    run.send(signal);
    run.wait();
  }
  RunningProgram worker({"study", "run", bench.study, "--worker"});
  RunningProgram other({"study", "run", bench.study});
  bench.done();
  CHECK(worker.wait().code == 0);
  CHECK(other.wait().code == 0);
  CHECK(bench.table() == whole.table());
  CHECK(bench.plan("to_do") == 0);
  CHECK_HAS(bench.run().out, "is complete");
  // Whoever ends last takes with it what killed and overtaken workers left.
  CHECK(fs::is_empty(bench.store + "/scratch"));
}

TEST_CASE("an item that fails is named, stops no other, and is tried again when that is asked") {
  const Bench bench(R"(recordings = ["good.h5", "bad.h5"]
methods = ["quest", "streamingllm"]
budgets = [16, 32]
[tasks.sweep]
chunk = 32
)");
  fs::copy_file(recording(96), bench.file("good.h5"));
  fs::copy_file(recording(64), bench.file("bad.h5"));
  flip(bench.file("bad.h5"));
  const RunResult run = bench.run({"--engine", "local", "--workers", "2"});
  INFO(run.err);
  CHECK(run.code == 4);
  CHECK_HAS(run.err, "4 of 8 items failed", "--retry-failed");
  const auto status = kvscope_run({"study", "status", bench.study, "--json"}).json();
  CHECK(status.at("known") == 4);
  REQUIRE(status.at("failed_items").size() == 4);
  CHECK(status.at("failed_items")[0].at("text") == "bad.h5");
  CHECK_HAS(status.at("failed_items")[0].at("failure").get<std::string>(), "bad.h5");
  CHECK_HAS(bench.table(), "failed: ");

  const std::size_t n_lines = bench.n_lines();
  CHECK(bench.run().code == 4);
  CHECK(bench.n_lines() == n_lines);  // not tried again by itself
  flip(bench.file("bad.h5"));
  const RunResult retried = bench.done({"--retry-failed"});
  CHECK_HAS(retried.out, "8 known (4 new in the store)");
}

TEST_CASE("a damaged recording of the store is made again when its items are tried again") {
  std::string text = replaced(kSmall, "[\"verifier\", \"draft\"]", "[\"draft\"]");
  text = text.substr(0, text.find("[tasks.perplexity]"));
  const Bench bench(text);
  bench.done();
  const std::string table = bench.table();
  bench.write(replaced(text, "32]", "32, 48]"));
  for (const auto& entry : fs::directory_iterator(bench.store + "/recordings")) flip(entry.path());
  const RunResult run = bench.run();
  CHECK(run.code == 4);
  CHECK_HAS(run.err, "3 of 10 items failed");
  bench.done({"--retry-failed"});
  bench.write(text);
  CHECK(bench.table() == table);
}

TEST_CASE("a plan tells time, memory and disk once two jobs of each kind were done") {
  const Bench bench;
  const Words plan = {"study", "plan", bench.study, "--workers", "2", "--json"};
  CHECK(kvscope_run(plan).json().at("wall_seconds").is_null());
  const auto probed = kvscope_run(with(plan, {"--probe"})).json();
  CHECK(probed.at("known") == 2 + 4 * 2 * 2);  // recordings; two methods of four kinds
  CHECK(probed.at("to_do") == 8);
  CHECK(probed.at("wall_seconds").get<double>() > 0.0);
  CHECK(probed.at("wall_seconds").get<double>() <= probed.at("seconds").get<double>());
  CHECK(probed.at("memory").get<double>() > 1e7);
  const RunResult run = bench.run();
  CHECK_HAS(run.out, "(8 new in the store)");
}

TEST_CASE("a study's figures, tables and page come from its store, and say how they were made") {
  const Bench bench("question = \"Does <Quest> pay?\"\n" + std::string(kSmall));
  bench.done();
  const std::string out = bench.file("report");
  const RunResult run = ran({"study", "report", bench.study, "--out", out});
  const std::string html = read_file(out + "/report.html");
  for (const char* words :
       {"Does &lt;Quest&gt; pay?", "id=\"p0-", "<td>Quest</td>", "kvscope study run",
        "kvscope figure budget sweep.csv --metric mass --panels model,text",
        "Zero is quest, of the same budget; heads of layers that every method acts in.",
        "max-tokens = 48"})
    CHECK_HAS(html, words);
  CHECK_HAS(read_file(out + "/report.tex"), "sweep-mass/budget.pdf", "sweep-mass_mean.tex");
  refused({"study", "report", bench.study, "--out", out}, 3, {"report.html", "--overwrite"});

  // A panel for each model, and what one method loses to another is the mean over heads.
  ran({"study", "report", bench.study, "--against", "recent", "--out", bench.file("f")});
  const std::string svg = read_file(bench.file("f/sweep-mass/budget.svg"));
  CHECK_HAS(svg, "verifier, book", "draft, book");
  const auto rows =
      kvscope_run({"study", "table", bench.study, "--task", "sweep", "--rows", "--format", "json"})
          .json();
  const auto mass_of = [&](const std::string& method) {  // behind Quest's dense layers
    double sum = 0.0;
    for (const auto& row : rows) {
      if (row.at("model") == "draft" && row.at("selector") == method && row.at("budget") == 16 &&
          row.at("layer").template get<int>() >= 2)
        sum += row.at("mass_mean").template get<double>() / 2.0;
    }
    return sum;
  };
  const std::string means = read_file(bench.file("f/sweep-means.csv"));
  const std::string line = means.substr(means.find("\nsweep,draft,book,,streamingllm,16,") + 1);
  const std::vector<std::string> names = split_words(means.substr(0, means.find('\n')), ',');
  const std::vector<std::string> cells = split_words(line.substr(0, line.find('\n')), ',');
  const auto number = [&](const char* name) {
    const auto at = std::ranges::find(names, name) - names.begin();
    return std::stod(cells.at(static_cast<std::size_t>(at)));
  };
  const double difference = number("mass_difference");
  CHECK(std::abs(difference - (mass_of("streamingllm") - mass_of("recent"))) < 1e-4);
  CHECK(number("mass_difference_low") < difference);
  CHECK(number("mass_difference_high") > difference);
  ran({"reproduce", bench.file("f/sweep-mass/budget.json")});
  refused({"study", "report", bench.study, "--out", bench.file("g"), "--against", "h2o"}, 2,
          {"--against", "quest, streamingllm, recent"});
}

TEST_CASE("a study may name an analysis, and pick numbers of it") {
  const Bench bench(R"(models = ["verifier", "draft"]
texts = ["book"]
[record]
max-tokens = 96
[tasks.bounds]
command = "analyze quest"
page-size = 8
pick = ["totals.violations", "totals.gap_mean"]
[tasks.geometry]
command = "analyze geometry"
)");
  const RunResult run = bench.done({"--engine", "local", "--workers", "2"});
  CHECK_HAS(run.out, "6 items, 6 known");
  const auto recording = fs::directory_iterator(bench.store + "/recordings")->path().string();
  const auto alone = ran({"analyze", "quest", recording, "--page-size", "8", "--json"}).json();
  const auto rows = ran({"study", "table", bench.study, "--format", "json"}).json();
  std::size_t n_same = 0;
  for (const auto& row : rows) {
    if (row.at("task") != "bounds") continue;
    CHECK(row.at("violations") == 0);
    n_same += row.at("gap_mean") == alone.at("totals").at("gap_mean") ? 1 : 0;
  }
  CHECK(n_same == 1);
  CHECK_HAS(bench.table(), ",points_per_head");  // of the totals alone
  ran({"study", "report", bench.study, "--out", bench.file("r")});
  CHECK_HAS(read_file(bench.file("r/report.html")), "kvscope table --rows");
  bench.write(replaced(read_file(bench.study), "totals.violations", "totals.no_such"));
  const RunResult wrong = bench.run();
  CHECK(wrong.code == 4);
  CHECK_HAS(wrong.err, "its JSON has no number \"totals.no_such\"");
  bench.write(replaced(read_file(bench.study), "totals.no_such", "gap_mean"));
  CHECK_HAS(bench.run().err, "two are called gap_mean");
}

TEST_CASE("what makes no study is refused with its line before anything runs") {
  struct Wrong {
    std::string from, to;
    int code;
    std::string says;
  };
  for (const Wrong& wrong : {
           Wrong{"\"quest\"", "\"qest\"", 2, "line 3: methods: unknown selector qest"},
           Wrong{"\"book\"", "\"essay.txt\"", 2, "line 2: there is no file"},
           Wrong{"budgets", "budget", 2, "line 4: unknown key \"budget\""},
           Wrong{"[16, 32]", "[]", 2, "line 4: budgets: expected at least one"},
           Wrong{"[16, 32]", "[16, \"tokens=16\"]", 2, "line 4: budgets: \"tokens=16\" is listed"},
           Wrong{"[16, 32]", "[0.5]", 2, "line 4: budgets: expected a kind"},
           Wrong{"\"draft\"]", "\"verifier\"]", 2, "line 1: models: \"verifier\" is listed twice"},
           Wrong{"\"draft\"]", "\"no/such\"]", 2, "line 1: no/such"},
           Wrong{"[record]", "budgets = [1]\n[record]", 3, "line 5: "},
           Wrong{"max-tokens = 96", "max-tokns = 96", 2, "line 6: record: unknown option"},
           Wrong{"chunk = 32", "chunk = \"big\"", 2, "line 8: tasks.sweep: --chunk"},
           Wrong{"chunk = 32", "chunk = 0", 2, "line 8: tasks.sweep: --chunk"},
           Wrong{"chunk = 32", "layers = \"5-2\"", 2, "line 8: tasks.sweep: --layers"},
           Wrong{"chunk = 32", "hardware = \"nosuch\"", 2, "line 8: tasks.sweep: "},
           Wrong{"chunk = 32", "no-ceiling = false", 2,
                 "line 8: tasks.sweep.no-ceiling: expected no"},
           Wrong{"max-tokens = 96", "command = \"x\"", 2, "line 6: record: unknown option"},
           Wrong{"chunk = 32", "calibration = \"a.h5\"", 2, "line 8: tasks.sweep: --calibration"},
           Wrong{"chunk = 32", "seed = 1\nworker = true", 2,
                 "line 9: tasks.sweep: --worker is set"},
           Wrong{"chunk = 32", "pick = [\"rows\"]", 2, "line 8: tasks.sweep.pick: expected a task"},
           Wrong{"budgets = [16, 32]\n", "", 2, "nothing is left to do: sweep: "},
           Wrong{"tasks.sweep", "tasks.swep", 2, "line 7: tasks.swep: expected the command"},
           Wrong{"methods", "protocols = [\"tokens\"]\nmethods", 2, "line 3: protocols"},
           Wrong{"\"quest\"", "\"specattn\"", 2, "line 3: specattn needs a draft"},
           Wrong{"[\"verifier\", \"draft\"]", "[\"verifier\"", 3, "line "},
       }) {
    const Bench bench(replaced(kSmall, wrong.from, wrong.to));
    const RunResult run = bench.run();
    INFO(run.err);
    CHECK(run.code == wrong.code);
    CHECK(run.err_is_one_line());
    CHECK_HAS(run.err, "small.toml", wrong.says);
    CHECK_FALSE(fs::exists(bench.store));
  }
  const Bench bench;
  fs::create_directories(bench.store + "/answers");
  std::ofstream(bench.store + "/answers/a.journal") << "no results\n";
  CHECK(bench.run().code == 3);
}

}  // namespace kvscope::test::study_test
