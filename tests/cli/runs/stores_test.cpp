// Work that is shared: done by workers and engines, in any order, after kills and failures; the
// bytes are those of one run.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <ctime>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "analysis/base/checked_lines.hpp"
#include "analysis/runs/leases.hpp"
#include "analysis/runs/store.hpp"
#include "core/base/json.hpp"
#include "core/base/only_maker.hpp"
#include "tests/cli/run_program.hpp"

namespace kvscope::test::stores_test {

struct Bench {
  TempDir dir;
  std::string trace = recording(96);

  std::string file(const std::string& name) const { return dir.file(name); }
  Words sweep(const Words& more = {}) const {
    return with({"sweep", trace, "--selector", "quest,streamingllm,lessismore", "--budget", "16",
                 "--chunk", "32"},
                more);
  }
};

const RunSetup kPinned{"", {"SOURCE_DATE_EPOCH=1700000000"}};

std::vector<fs::path> segments_of(const fs::path& store) {
  std::vector<fs::path> files;
  std::error_code none;
  for (auto entry = fs::directory_iterator(store / "answers", none);
       !none && entry != fs::directory_iterator(); entry.increment(none)) {
    if (entry->path().extension() == ".journal") files.push_back(entry->path());
  }
  return files;
}

/// Keys of answers, those that are there twice also twice.
std::multiset<std::string> keys_in(const fs::path& store) {
  std::multiset<std::string> keys;
  for (const fs::path& segment : segments_of(store)) {
    read_checked_texts(segment, "store", [&](const CheckedText& text) {
      const Json line = Json::parse(text.data);
      if (line.contains("answer")) keys.insert(line.at("key").get<std::string>());
    });
  }
  return keys;
}

TEST_CASE("workers and engines make the bytes of one run") {
  const Bench bench;
  const std::vector<std::pair<Words, std::string>> cases = {
      {bench.sweep(), ".csv"},
      {bench.sweep(), ".h5"},
      {bench.sweep({"--hardware", "a100-80"}), ".json"},
      {{"simulate", "perplexity", "--max-tokens", "80", "--windows", "2", "--selector",
        "full,quest,recent", "--budget", "32", "--offset", "0"},
       ".json"},
      {{"simulate", "retrieval", "--lengths", "128", "--depths", "2", "--selector", "full,quoka",
        "--budget", "32"},
       ".h5"},
      {{"analyze", "quest", bench.trace}, ".h5"},
      {{"analyze", "quoka", bench.trace}, ".h5"},
      {{"analyze", "theorem-b1", bench.trace}, ".h5"},
      {{"analyze", "geometry", bench.trace, "--layers", "1,3,6"}, ".h5"},
      {{"ladder", bench.trace, "--selector", "quest", "--budget", "16", "--chunk", "16"}, ".h5"},
      {{"cost", bench.trace, "--selector", "quest,oracle-topk", "--budget", "16", "--hardware",
        "a100-80,rtx-4090", "--context", "4096", "--chunk", "32"},
       ".json"},
  };
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const auto& [command, ending] = cases[c];
    INFO(command[0] << " " << command[1] << " " << ending);
    const std::string whole = bench.file("whole" + std::to_string(c) + ending);
    const RunResult undivided = ran(with(command, {"--out", whole}), kPinned);
    const std::string store = bench.file("store" + std::to_string(c));
    CHECK(ran(with(command, {"--store", store, "--worker"})).out.empty());
    const auto keys = keys_in(store);
    CHECK(keys.size() > 2);
    const std::string out = bench.file("out" + std::to_string(c) + ending);
    const RunResult from_store = ran(with(command, {"--store", store, "--out", out}), kPinned);
    CHECK(read_file(out) == read_file(whole));
    CHECK(from_store.out == undivided.out);
    CHECK(keys_in(store) == keys);  // nothing was done again
    fs::remove(out);
    ran(with(command, {"--engine", "local", "--workers", "2", "--out", out}), kPinned);
    CHECK(read_file(out) == read_file(whole));
    CHECK_FALSE(fs::exists(out + ".store"));
  }
}

/// The lines of a segment, as `change` leaves them, under sums that are right.
void forge(const fs::path& segment, const std::function<void(std::vector<Json>&)>& change) {
  std::vector<Json> lines;
  read_checked_texts(segment, "store",
                     [&](const CheckedText& text) { lines.push_back(Json::parse(text.data)); });
  change(lines);
  std::ofstream text(segment, std::ios::binary | std::ios::trunc);
  for (const Json& line : lines) text << checked_line(line);
}

TEST_CASE("prompts that failed have no say: their rows have no numbers, the others keep theirs") {
  const TempDir dir;
  const Words asked = {"simulate", "retrieval",  "--lengths",  "200",      "--depths",
                       "2",        "--selector", "full,quest", "--budget", "32",
                       "--json",   "--store",    dir.file("s")};
  const Json before = ran(asked).json().at("rows");
  forge(segments_of(dir.file("s")).front(), [](std::vector<Json>& lines) {
    std::string of_full;  // what keys of its prompts begin with: they are answered first
    for (Json& line : lines) {
      const std::string question = line.value("key", "").substr(0, 16);
      if (of_full.empty()) of_full = question;
      if (question != of_full) line = {{"key", line.at("key")}, {"failure", "its disk broke"}};
    }
  });
  const RunResult run = kvscope_run(with(asked, {"--without-failed"}));
  const Json rows = run.json().at("rows");
  CHECK(rows.at(0) == before.at(0));
  CHECK(before.at(1).at("accuracy").is_number());
  CHECK(rows.at(1).at("accuracy").is_null());
}

TEST_CASE("a store says what is done, missing and failed, how fast it grows, and what is damaged") {
  const Bench bench;
  const std::string store = bench.file("s");
  ran(bench.sweep({"--store", store}));
  const fs::path segment = segments_of(store).front();
  // One missing, one failed, and of the others one every six seconds, the last one now.
  std::string failed;
  forge(segment, [&](std::vector<Json>& lines) {
    REQUIRE(lines.size() == 2 + 17);
    lines.pop_back();
    failed = lines.back().at("key");
    lines.back() = {{"key", failed}, {"failure", "its disk broke"}};
    for (std::size_t i = 2; i < 17; ++i)
      lines[i]["at"] =
          static_cast<double>(std::time(nullptr)) - 6.0 * (16.0 - static_cast<double>(i));
  });
  const auto info = [&] { return ran({"info", store, "--json"}).json(); };
  const auto plan = info().at("plans").at(0);
  CHECK(plan.at("command") == "sweep");
  CHECK(plan.at("items") == 17);
  CHECK(plan.at("done") == 15);
  CHECK(plan.at("missing") == 1);
  CHECK(plan.at("failed") == 1);
  CHECK(info().at("what") == "store");
  CHECK(info().at("failed_items") == Json{{{"id", failed}, {"failure", "its disk broke"}}});
  CHECK(info().at("seconds_left").is_null());  // nobody is at it
  CHECK_HAS(kvscope_run({"info", store}).out, "1 missing, 1 failed", failed + ": its disk broke");
  {
    const Store own(store);
    Leases leases(own.leases(), own.worker());
    const auto lease = leases.take("k-1", {});
    CHECK(info().at("at_work") == 1);
    CHECK(std::abs(info().at("items_per_hour").get<double>() - 600.0) < 1.0);
    CHECK(std::abs(info().at("seconds_left").get<double>() - 6.0) < 0.1);
  }
  const std::string text = read_file(segment);
  for (const std::size_t at : {text.find('\n') + 40, text.size() - 5}) {
    std::string damaged = text;
    damaged[at] ^= 1;
    std::ofstream(segment, std::ios::binary | std::ios::trunc) << damaged;
    const std::string line = at < text.size() - 5 ? "line 2" : "line 18";
    refused({"info", store}, 3, {segment.filename(), line});
    refused(bench.sweep({"--store", store}), 3, {segment.filename(), line});
  }
}

TEST_CASE("words that make no sense end with a sentence and code 2") {
  const Bench bench;
  const std::string store = bench.file("s");
  const std::vector<std::pair<Words, std::string>> cases = {
      {bench.sweep({"--worker"}), "needs --store"},
      {bench.sweep({"--worker", "--store", store, "--out", "x.csv"}), "a worker makes no result"},
      {bench.sweep({"--worker", "--store", store, "--engine", "local"}), "exclude"},
      {bench.sweep({"--engine", "locall", "--out", "x.csv"}), "local, mpi, slurm or ray"},
      {bench.sweep({"--engine", "local"}), "needs --out"},
      {bench.sweep({"--workers", "2"}), "needs --engine"},
      {bench.sweep({"--shard", "1/2"}), "Did you mean --store DIR --worker?"},
      {bench.sweep({"--engine", "local", "--workers", "0", "--out", "x.csv"}), "--workers"},
      {bench.sweep({"--retry-failed"}), "needs --store"},
      {bench.sweep({"--resume"}), "needs --out"},
      {{"analyze", "heads", bench.trace, "--store", store}, "has no items"},
      {{"simulate", "retrieval", "--lengths", "128", "--selector", "full", "--until-interval",
        "0.2", "--store", store},
       "not known beforehand"},
      {bench.sweep({"--store", bench.dir.path().string()}), "holds other files"},
  };
  bench.dir.write("mine.txt", "x");
  for (const auto& [words, part] : cases) {
    refused(words, 2, {part});
    CHECK(!fs::exists(store));
  }
  refused(bench.sweep({"--store", bench.trace}), 3, {"is a file"});
  std::string text;
  for (int i = 0; i < 200; ++i) text += "one word after another, ";
  const Words piped = {"simulate",     "perplexity", "--text",     "-",
                       "--max-tokens", "64",         "--offset",   "0",
                       "--windows",    "1",          "--selector", "full",
                       "--engine",     "local",      "--out",      bench.file("p.csv")};
  refused(piped, 2, {"standard input cannot be handed to workers"}, {text, {}});
  // what is wrong with the input is said once
  fs::copy_file(bench.trace, bench.file("cut.h5"));
  fs::resize_file(bench.file("cut.h5"), fs::file_size(bench.trace) / 2);
  refused({"sweep", bench.file("cut.h5"), "--selector", "full", "--engine", "local", "--out",
           bench.file("cut.csv")},
          3, {});
}

TEST_CASE("ray without the Python package says what to install") {
  const Bench bench;
  const fs::path python = bench.dir.write(
      "python", "#!/bin/sh\necho \"x: No module named 'kvscope.ray_workers'\" >&2\nexit 1\n");
  fs::permissions(python, fs::perms::owner_all);
  const auto run = kvscope_run(bench.sweep({"--engine", "ray", "--out", bench.file("r.csv")}),
                               {"", {"KVSCOPE_PYTHON=" + python.string()}});
  INFO(run.err);
  CHECK(run.code == 3);
  CHECK_HAS(run.err, "needs the Python package (traces/python) and ray");
}

TEST_CASE(
    "a run goes on with --resume from the store beside its result, if it is of the same work") {
  const Bench bench;
  const std::string out = bench.file("out.csv");
  const std::string whole = bench.file("whole.csv");
  ran(bench.sweep({"--out", whole}));
  // What a run that was killed leaves: some of its answers, and a lease.
  const std::string half = bench.file("half");
  ran(bench.sweep({"--store", half}));
  fs::rename(half, out + ".store");
  const fs::path segment = segments_of(out + ".store").front();
  const std::string text = read_file(segment);
  std::ofstream(segment, std::ios::binary | std::ios::trunc) << text.substr(0, text.size() * 2 / 3);
  refused(bench.sweep({"--out", out}), 3, {"--resume continues it, --overwrite starts over"});
  CHECK_FALSE(fs::exists(out));
  ran(bench.sweep({"--out", out, "--resume"}));
  CHECK(read_file(out) == read_file(whole));
  CHECK_FALSE(fs::exists(out + ".store"));
  CHECK_HAS(ran(bench.sweep({"--out", out, "--resume"})).err, "is complete");
  ran(bench.sweep({"--store", half, "--seed", "5"}));
  fs::rename(half, bench.file("o2.csv.store"));
  ran(bench.sweep({"--out", bench.file("o2.csv"), "--overwrite"}));
  CHECK(read_file(bench.file("o2.csv")) == read_file(whole));
}

TEST_CASE("one method more is computed alone") {
  const Bench bench;
  const std::string store = bench.file("s");
  ran({"sweep", bench.trace, "--selector", "quest", "--budget", "16", "--chunk", "32", "--store",
       store});
  CHECK(keys_in(store).size() == 8);
  ran(bench.sweep({"--store", store}));
  CHECK(keys_in(store).size() == 17);
}

TEST_CASE("a folder beside the output that is no store of it stays as it is") {
  const Bench bench;
  const std::string out = bench.file("o.csv");
  for (const char* place : {"answers", "scratch"}) {
    INFO(place);
    const fs::path store = out + ".store";
    fs::create_directories(store / place);
    std::ofstream(store / place / "thesis.txt") << "mine";
    for (const char* flag : {"--overwrite", "--resume"})
      refused(bench.sweep({"--out", out, flag}), 2, {"o.csv.store holds other files"});
    CHECK(read_file(store / place / "thesis.txt") == "mine");
    CHECK_FALSE(fs::exists(out));
    fs::remove_all(store);
  }
  for (const char* end : {"", "/"})
    refused(bench.sweep({"--store", out + ".store" + end}), 2, {"that of the --out of this name"});
  // A study's store of that name is used, and stays.
  ran(bench.sweep({"--store", bench.file("s")}));
  fs::create_directories(bench.file("s") + "/recordings");
  fs::rename(bench.file("s"), out + ".store");
  CHECK_HAS(ran(bench.sweep({"--out", out, "--overwrite"})).err, "o.csv.store stays");
  CHECK(keys_in(out + ".store").size() == 17);
}

TEST_CASE("work is continued with the weights that it was begun with, and no others") {
  const Bench bench;
  const fs::path model = bench.dir.path() / "llm";
  fs::copy(testing::source_dir() / "traces/samples/draft", model);
  // As after another round of training: the same shape, the same name, another number at the end.
  const auto replace_weights = [&] {
    std::string bytes = read_file(model / "model.safetensors");
    bytes[bytes.size() - 4] ^= 1;
    std::ofstream(model / "model.safetensors", std::ios::binary | std::ios::trunc) << bytes;
  };
  const auto command = [&](const Words& more) {
    return with({"simulate", "perplexity", "--model", model.string(), "--max-tokens", "48",
                 "--offset", "0", "--windows", "1", "--selector", "recent", "--budget", "16,32"},
                more);
  };
  const std::string out = bench.file("out.json");
  const std::string half = bench.file("half");
  ran(command({"--store", half}));
  fs::rename(half, out + ".store");
  replace_weights();
  ran(command({"--out", out, "--resume"}));
  // A store that is shared has both, each under its own keys.
  const std::string shared = bench.file("shared");
  const auto changed = ran(command({"--store", shared, "--json"})).json();
  replace_weights();
  const auto first = ran(command({"--store", shared, "--json"})).json();
  CHECK(first.at("config").at("model_hash") != changed.at("config").at("model_hash"));
  CHECK(keys_in(shared).size() == 4);
  CHECK(nlohmann::json::parse(read_file(out)).at("rows") == changed.at("rows"));
  CHECK(keys_in(out + ".store").size() == 4);  // the other work's are not lost
}

TEST_CASE("one bad item stops no other, is tried again when asked, and can be left out") {
  const Bench bench;
  const std::string good = bench.file("good.h5");
  const std::string bad = bench.file("bad.h5");
  fs::copy_file(recording(96), good);
  fs::copy_file(recording(64), bad);
  const auto sweep = [&](const Words& more) {
    return with(
        {"sweep", good, bad, "--selector", "quest,streamingllm", "--budget", "16", "--chunk", "32"},
        more);
  };
  const std::string whole = bench.file("whole.csv");
  ran(sweep({"--out", whole}));
  flip(bad);
  refused(sweep({"--out", bench.file("alone.csv")}), 3, {"bad.h5"});
  const std::string store = bench.file("store");
  const std::string out = bench.file("out.csv");
  const Words command = sweep({"--store", store, "--out", out});
  const RunResult run = kvscope_run(with(command, {"--engine", "local", "--workers", "2"}));
  CHECK(run.code == 4);
  CHECK_HAS(run.err, "2 of 32 items failed", "--retry-failed", "bad.h5");
  CHECK_FALSE(fs::exists(out));
  CHECK(keys_in(store).size() == 30);
  const auto failed = ran({"info", store, "--json"}).json().at("failed_items");
  REQUIRE(failed.size() == 2);
  CHECK_HAS(run.err, "item " + failed[0].at("id").get<std::string>() + " failed: ");
  CHECK(kvscope_run(sweep({"--store", store, "--worker"})).code == 4);

  // Without it: its rows have names and places, the others their bytes.
  const RunResult lacking = kvscope_run(with(command, {"--without-failed", "--json"}));
  CHECK(lacking.code == 4);
  const auto skipped = lacking.json().at("skipped");
  REQUIRE(skipped.size() == 2);
  CHECK_HAS(skipped[0].get<std::string>(), "its rows are empty");
  std::ifstream left(whole), right(out);
  std::size_t n_empty = 0;
  for (std::string a, b; std::getline(left, a) && std::getline(right, b);) {
    if (a == b) continue;
    ++n_empty;
    CHECK(b.starts_with("bad.h5,"));
    CHECK(b.find(",,,,,,,,,,,,,,,,,,,,") != std::string::npos);
  }
  const auto info = kvscope_run({"info", bad, "--json"}).json();
  CHECK(n_empty == 2 * (info.at("q_heads").size() + 1));  // of two methods
  ran({"table", out, "--rows", "selector", "--value", "mass_mean", "--format", "csv"});

  flip(bad);  // mended
  fs::remove(out);
  CHECK(kvscope_run(command).code == 4);  // nobody tries again by himself
  ran(with(command, {"--retry-failed", "--engine", "local", "--workers", "2"}));
  CHECK(read_file(out) == read_file(whole));
}

TEST_CASE("a gap is no result, whatever goes on") {
  const Bench bench;
  const std::string bad = bench.file("bad.h5"), out = bench.file("o.csv");
  const std::string whole = bench.file("whole.csv");
  fs::copy_file(bench.trace, bad);
  const auto sweep = [&](const Words& more) {
    return with({"sweep", bad, "--selector", "quest", "--budget", "16"}, more);
  };
  ran(sweep({"--out", whole}));
  flip(bad);
  const Words local = {"--out", out, "--engine", "local", "--workers", "2"};
  CHECK(kvscope_run(with(sweep(local), {"--without-failed"})).code == 4);
  CHECK(kvscope_run(with(sweep(local), {"--resume", "--retry-failed"})).code == 4);
  CHECK(fs::exists(out + ".store"));
  flip(bad);  // mended
  ran(with(sweep(local), {"--resume", "--retry-failed"}));
  CHECK(read_file(out) == read_file(whole));
  CHECK_FALSE(fs::exists(out + ".store"));
}

TEST_CASE("simulations and analyses without a failed item") {
  const Bench bench;
  const std::vector<Words> commands = {
      {"simulate", "retrieval", "--selector", "full,recent", "--budget", "32", "--lengths", "128",
       "--depths", "1", "--trials", "2"},
      {"simulate", "perplexity", "--selector", "full,recent", "--budget", "32", "--max-tokens",
       "48", "--offset", "0", "--windows", "2"},
      {"analyze", "quest", bench.trace}};
  for (const Words& bare : commands) {
    INFO(bare[1]);
    const std::string store = bench.file(bare[1]);
    const Words command = with(bare, {"--store", store, "--json"});
    const RunResult whole = ran(command);
    forge(segments_of(store).front(), [](std::vector<Json>& lines) {
      lines[2] = {{"key", lines[2].at("key")}, {"failure", "its disk broke"}};
    });
    const RunResult failed = kvscope_run(command);
    CHECK(failed.code == 4);
    CHECK_HAS(failed.err, "its disk broke", "--retry-failed");
    const RunResult lacking = kvscope_run(with(command, {"--without-failed"}));
    INFO(lacking.err);
    CHECK(lacking.code == 4);
    if (bare[0] == "analyze")
      CHECK_HAS(lacking.err, "a result without them cannot be made");
    else
      CHECK_HAS(lacking.json().at("skipped").dump(), "its disk broke");
    CHECK(ran(with(command, {"--retry-failed"})).out == whole.out);
  }
}

/// The workers that this process started.
std::vector<pid_t> workers_of(pid_t parent) {
  std::vector<pid_t> workers;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream words(entry.path() / "cmdline", std::ios::binary);
    std::string line;  // getline takes it quietly that a process ends meanwhile
    std::getline(words, line);
    if (line.find("--worker") == std::string::npos || line.find("--engine") != std::string::npos)
      continue;  // one that looks at a file for its parent has the parent's words
    std::ifstream status(entry.path() / "status");
    for (std::string field; std::getline(status, field);) {
      if (field == "PPid:\t" + std::to_string(parent)) workers.push_back(std::stoi(name));
    }
  }
  return workers;
}

TEST_CASE("workers that signals end lose no item, and none that is known is done again") {
  const Bench bench;
  const std::string whole = bench.file("whole.csv");
  ran(bench.sweep({"--resamples", "4000", "--out", whole}));
  std::mt19937 random(7);
  for (const bool is_at_start : {false, true}) {  // an item has five tries: those are none
    const std::string out = bench.file("out" + std::to_string(is_at_start) + ".csv");
    const std::string store = bench.file("store" + std::to_string(is_at_start));
    RunningProgram run(bench.sweep({"--resamples", "4000", "--engine", "local", "--workers",
                                    is_at_start ? "1" : "3", "--store", store, "--out", out}));
    std::multiset<std::string> known;
    std::set<pid_t> ended;
    for (int tries = 0; tries < 4000 && run.is_running() && ended.size() < 8; ++tries) {
      if (!is_at_start) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 40));
      const std::vector<pid_t> workers = workers_of(run.pid());
      if (workers.empty()) continue;
      const pid_t worker = workers[random() % workers.size()];
      if (!ended.insert(worker).second) continue;
      known = keys_in(store);
      ::kill(worker, is_at_start || ended.size() % 2 == 0 ? SIGKILL : SIGTERM);
    }
    const RunResult result = run.wait();
    INFO(result.err << " after " << ended.size() << " signals");
    CHECK(ended.size() >= (is_at_start ? 8 : 1));
    CHECK(result.code == 0);  // a worker that is killed, or asked to stop, is replaced
    CHECK(read_file(out) == read_file(whole));
    const auto at_end = keys_in(store);
    for (const std::string& key : known) CHECK(at_end.count(key) == 1);
    CHECK(std::set<std::string>(at_end.begin(), at_end.end()).size() == 17);
  }
}

TEST_CASE("a run that a signal ends keeps what is finished, and the same command goes on") {
  const Bench bench;
  const std::string whole = bench.file("whole.csv");
  const std::string out = bench.file("out.csv");
  const std::string store = bench.file("store");
  const Words slow = bench.sweep({"--resamples", "10000"});
  ran(with(slow, {"--out", whole}));
  const Words command = with(slow, {"--store", store, "--progress", "json", "--out", out});
  for (const int signal : {SIGTERM, SIGKILL, SIGINT}) {
    RunningProgram run(command);
    REQUIRE(run.waits_for("\"stage\""));  // the work has begun
    run.send(signal);
    const RunResult ended = run.wait();
    INFO(ended.err);
    if (ended.code == 0) break;  // it was faster
    CHECK(ended.code == 128 + signal);
    if (signal == SIGKILL) continue;
    CHECK_HAS(ended.err, "stopped", "the same command continues");
    CHECK(fs::is_empty(fs::path(store) / "leases"));
  }
  if (!fs::exists(out)) ran(command);
  CHECK(read_file(out) == read_file(whole));
  CHECK(fs::is_empty(fs::path(store) / "leases"));
  const auto keys = keys_in(store);
  CHECK(keys.size() == 17);  // none was done again
  CHECK(std::set<std::string>(keys.begin(), keys.end()).size() == 17);
}

TEST_CASE("a recording whose name begins with a dash") {
  const Bench bench;
  const std::string here = fs::current_path();
  fs::current_path(bench.dir.path());
  fs::copy_file(bench.trace, "-o.h5");
  const RunResult run = kvscope_run({"sweep", "--selector", "quest", "--budget", "16", "--engine",
                                     "local", "--workers", "2", "--out", "t.csv", "--", "-o.h5"});
  fs::current_path(here);
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(fs::exists(bench.file("t.csv")));
}

TEST_CASE("one process at a time makes an output; the others say so and leave it alone") {
  const TempDir dir;
  const std::string out = dir.file("s.csv");
  const Words sweep = {"sweep",    recording(96), "--selector", "quest",
                       "--budget", "16",          "--out",      out};
  {
    const OnlyMaker other(out);
    refused(sweep, 3, {"s.csv: another process is making it"});
    refused(with(sweep, {"--resume"}), 3, {"another process is making it"});
  }
  ran(sweep);
  CHECK_FALSE(std::filesystem::exists(out + ".store"));
}

}  // namespace kvscope::test::stores_test
