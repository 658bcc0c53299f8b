// Units of work: listed, done alone, run by engines, merged; whatever ran where, the bytes are
// those of one run.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "analysis/base/checked_lines.hpp"
#include "tests/cli/run_program.hpp"

namespace kvscope::test::units_test {

struct Bench {
  TempDir dir;
  std::string trace = recording(96);
  std::string file(const std::string& name) const { return dir.file(name); }
  Words sweep(const Words& more = {}) const {
    return with({"sweep", trace, "--selector", "quest,streamingllm,lessismore", "--budget", "16",
                 "--chunk", "32"},
                more);
  }
  /// Ids as --list-units --json names them.
  Words ids(const Words& command) const {
    const RunResult run = ran(with(command, {"--list-units", "--json"}));
    Words ids;
    const auto list = run.json();
    for (const auto& unit : list.at("units")) ids.push_back(unit.at("id"));
    return ids;
  }
  /// Does the units in this order, each in a process of its own.
  void do_units(const Words& command, const Words& ids, const std::string& folder) const {
    for (const std::string& id : ids) {
      CHECK(ran(with(command, {"--unit", id, "--out", folder})).out == id + "\n");
    }
  }
};

const RunSetup kPinned{"", {"SOURCE_DATE_EPOCH=1700000000"}};

std::size_t n_files(const fs::path& folder) {
  std::error_code none;
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder, none), fs::directory_iterator{}));
}

TEST_CASE("units say what they read before anything is computed") {
  const Bench bench;
  const RunResult run = ran(bench.sweep({"--list-units", "--json"}));
  const auto list = run.json();
  CHECK(list.at("command") == "sweep");
  // eight layers for the methods that look at one layer, and one unit for the one that links them
  REQUIRE(list.at("n_units") == 9);
  const auto unit = list.at("units").at(0);
  CHECK(unit.at("inputs").at(0) == "trace.h5, layer 0");
  const auto model = kvscope_run({"info", bench.trace, "--json"}).json().at("model");
  const double n_kv = model.at("n_kv"), n_q = model.at("n_q"), d_head = model.at("d_head");
  CHECK(unit.at("bytes_to_read") == 96 * d_head * (n_q + 2 * n_kv) * 4);
  CHECK(unit.at("predicted_seconds").is_null());                    // until two units are timed
  CHECK(unit.at("predicted_memory") > 96 * d_head * 2 * n_kv * 4);  // keys and values
  CHECK(list.at("units").at(8).at("bytes_to_read") == 8.0 * unit.at("bytes_to_read").get<double>());
  CHECK(n_files(bench.dir.path()) == 0);
  CHECK_HAS(kvscope_run(bench.sweep({"--list-units"})).out, "layers 0 to 7");
  // Ids are words, and stand left, whether their hash begins with a digit or a letter.
  for (const char* seed : {"1", "2", "3", "4", "5", "6"}) {
    CHECK(kvscope_run(bench.sweep({"--list-units", "--seed", seed})).out.starts_with("unit "));
  }
}

TEST_CASE("ray without the Python package says what to install") {
  const Bench bench;
  const fs::path python = bench.dir.write(
      "python", "#!/bin/sh\necho \"x: No module named 'kvscope.ray_units'\" >&2\nexit 1\n");
  fs::permissions(python, fs::perms::owner_all);
  const auto run = kvscope_run(bench.sweep({"--engine", "ray", "--out", bench.file("r.csv")}),
                               {"", {"KVSCOPE_PYTHON=" + python.string()}});
  INFO(run.err);
  CHECK(run.code != 0);
  CHECK_HAS(run.err, "needs the Python package (traces/python) and ray");
}

TEST_CASE("units done apart, in any order, make the bytes of one run") {
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
      {{"cost", bench.trace, "--selector", "quest,oracle-topk", "--budget", "16", "--hardware",
        "a100-80,rtx-4090", "--context", "4096", "--chunk", "32"},
       ".json"},
  };
  std::mt19937 random(5);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const auto& [command, ending] = cases[c];
    INFO(command[0] << " " << command[1] << " " << ending);
    const std::string whole = bench.file("whole" + std::to_string(c) + ending);
    const RunResult undivided = ran(with(command, {"--out", whole}), kPinned);
    Words ids = bench.ids(command);
    REQUIRE(ids.size() > 2);
    std::shuffle(ids.begin(), ids.end(), random);
    const std::string folder = bench.file("units" + std::to_string(c));
    bench.do_units(command, ids, folder);
    CHECK(n_files(folder) == ids.size());  // a unit is one file
    const std::string merged = bench.file("merged" + std::to_string(c) + ending);
    const RunResult merge = ran({"merge", folder, "--out", merged}, kPinned);
    CHECK(read_file(merged) == read_file(whole));
    CHECK(merge.out == undivided.out);
    CHECK(n_files(folder) == ids.size());
    CHECK(kvscope_run({"merge", folder, "--out", merged}).code == 3);  // exists
  }
}

TEST_CASE("a second run of a unit changes nothing, and a damaged file is made again") {
  const Bench bench;
  const Words ids = bench.ids(bench.sweep());
  const std::string folder = bench.file("units");
  const fs::path file = fs::path(folder) / (ids[1] + ".unit");
  bench.do_units(bench.sweep(), {ids[1]}, folder);
  const std::string bytes = read_file(file);
  const auto time = fs::last_write_time(file);
  bench.do_units(bench.sweep(), {ids[1]}, folder);
  CHECK(fs::last_write_time(file) == time);
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes.substr(0, bytes.size() / 2);
  refused({"merge", folder}, 3, {ids[1]});
  bench.do_units(bench.sweep(), {ids[1]}, folder);
  CHECK(read_file(file) == bytes);
}

TEST_CASE("a merge names what is missing and mixes neither inputs nor versions") {
  const Bench bench;
  const Words ids = bench.ids(bench.sweep());
  const std::string folder = bench.file("units");
  bench.do_units(bench.sweep(), {ids[0], ids[2], ids[4]}, folder);
  const std::string out = bench.file("merged.csv");
  const auto refuse = [&](int code, const Words& parts) {
    refused({"merge", folder, "--out", out}, code, parts);
    CHECK(!fs::exists(out));
  };
  refuse(2, {"6 of 9 units are missing", ids[1], ids[3]});
  // of other options
  const Words other = bench.ids(bench.sweep({"--seed", "1"}));
  bench.do_units(bench.sweep({"--seed", "1"}), {other[5]}, folder);
  refuse(2, {"different inputs or options"});
  fs::remove(fs::path(folder) / (other[5] + ".unit"));
  // of another version: the same file, but for what it says of its program
  const fs::path file = fs::path(folder) / (ids[2] + ".unit");
  std::vector<nlohmann::ordered_json> lines;
  read_checked_lines(file, "unit", [&](const auto& line, bool) { lines.push_back(line); });
  const auto write = [&] {
    std::ofstream text(file, std::ios::binary | std::ios::trunc);
    for (const auto& line : lines) text << checked_line(line);
  };
  const auto about = lines[0];
  lines[0]["version"] = "kvscope 0.0.9";
  write();
  refuse(2, {"kvscope 0.0.9", "one version"});
  // under a name that is not its own
  lines[0] = about;
  lines[0]["unit"] = 3;
  write();
  refuse(3, {ids[3], "to be called"});
  fs::remove(file);
  // hostile: what is read decides neither memory nor commands
  lines[0] = about;
  lines[0]["n_units"] = std::uint64_t{1} << 60;
  write();
  refuse(2, {"different inputs"});
  fs::remove_all(folder);
  fs::create_directory(folder);
  refuse(3, {"holds no units"});
  // one file that claims as many units as a folder may hold
  lines[0]["n_units"] = 100'000'000;
  write();
  refuse(2, {"99999999 of 100000000 units are missing"});
  CHECK(kvscope_run({"merge", folder}).max_rss_kib < 200 * 1024);
}

TEST_CASE("ids that are none, of other inputs or beyond the last end with a sentence and code 2") {
  const Bench bench;
  const Words ids = bench.ids(bench.sweep());
  const Words other = bench.ids(bench.sweep({"--seed", "1"}));
  const std::string folder = bench.file("units");
  const std::string last = ids[0].substr(0, 17) + "000009";
  const std::vector<std::pair<Words, std::string>> cases = {
      {bench.sweep({"--unit", "7", "--out", folder}), "is no unit"},
      {bench.sweep({"--unit", ids[0] + "0", "--out", folder}), "is no unit"},
      {bench.sweep({"--unit", other[0], "--out", folder}), "of other inputs"},
      {bench.sweep({"--unit", ids[0] + "," + other[0], "--out", folder}), "of other inputs"},
      {bench.sweep({"--unit", last, "--out", folder}), "this command has 9 units"},
      {bench.sweep({"--unit", ids[0]}), "needs --out"},
      {bench.sweep({"--unit", ids[0], "--out", bench.trace}), "expected a folder"},
      {bench.sweep({"--unit", ids[0], "--list-units", "--out", folder}), "exclude"},
      {bench.sweep({"--unit", ids[0], "--engine", "local", "--out", folder}), "exclude"},
      {bench.sweep({"--list-units", "--out", "x.csv"}), "--out"},
      {bench.sweep({"--engine", "locall", "--out", "x.csv"}), "local, mpi, slurm or ray"},
      {bench.sweep({"--engine", "local"}), "needs --out"},
      {bench.sweep({"--workers", "2"}), "needs --engine"},
      {bench.sweep({"--engine", "local", "--workers", "0", "--out", "x.csv"}), "--workers"},
      {bench.sweep({"--engine", "local", "--shard", "1/2", "--out", "x.csv"}), "--shard"},
      {bench.sweep({"--engine", "local", "--resume", "--out", "x.csv"}), "--resume"},
      {{"analyze", "heads", bench.trace, "--list-units"}, "has no units"},
      {{"simulate", "retrieval", "--lengths", "128", "--selector", "full", "--until-interval",
        "0.2", "--list-units"},
       "not known beforehand"},
      {{"merge", bench.dir.path().string(), bench.trace}, "one folder"},
  };
  for (const auto& [words, part] : cases) {
    refused(words, 2, {part});
    CHECK(!fs::exists(folder));
  }
}

TEST_CASE("local workers make the bytes of one run, and their folder goes") {
  const Bench bench;
  const std::string whole = bench.file("whole.csv");
  ran(bench.sweep({"--out", whole}));
  for (const std::string n : {"1", "2", "4"}) {
    const std::string out = bench.file("by" + n + ".csv");
    ran(bench.sweep({"--engine", "local", "--workers", n, "--out", out}));
    CHECK(read_file(out) == read_file(whole));
    CHECK(!fs::exists(out + ".units"));
  }
  // what engines that were killed left in the folder goes with it
  const std::string left = bench.file("left.csv");
  fs::create_directories(left + ".units");
  for (const char* name : {"list-of-units-6957", "slurm-3.out", "slurm.sh"})
    std::ofstream(fs::path(left + ".units") / name) << "x\n";
  ran(bench.sweep({"--engine", "local", "--workers", "2", "--out", left}));
  CHECK(!fs::exists(left + ".units"));
  // a folder that was named stays, and what it holds is not computed again
  const std::string folder = bench.file("kept");
  const Words kept = bench.sweep({"--units", folder, "--json"});
  const RunResult first = ran(with(kept, {"--engine", "local", "--workers", "2"}));
  CHECK(n_files(folder) == 9);
  CHECK(kvscope_run(kept).out == first.out);
  // what is wrong with the input is said once
  fs::copy_file(bench.trace, bench.file("cut.h5"));
  fs::resize_file(bench.file("cut.h5"), fs::file_size(bench.trace) / 2);
  refused({"sweep", bench.file("cut.h5"), "--selector", "full", "--engine", "local", "--out",
           bench.file("cut.csv")},
          3, {});
}

TEST_CASE("ranks of mpirun and tasks of an array job take their share of a list") {
  const Bench bench;
  const Words ids = bench.ids(bench.sweep());
  const std::string list = bench.file("list");
  std::ofstream text(list);
  for (const std::string& id : ids) text << id << '\n';
  text.close();
  const std::string folder = bench.file("units");
  std::size_t n = 0;
  const std::vector<std::vector<std::string>> ranks = {
      {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=3"},
      {"SLURM_ARRAY_TASK_ID=1", "SLURM_ARRAY_TASK_MIN=0", "SLURM_ARRAY_TASK_COUNT=3"},
      {"PMI_RANK=2", "PMI_SIZE=3"}};
  for (const auto& environment : ranks) {
    CHECK(ran(bench.sweep({"--unit", "@" + list, "--out", folder}), {"", environment}).out ==
          ids[n] + "\n" + ids[n + 3] + "\n" + ids[n + 6] + "\n");
    CHECK(n_files(folder) == 3 * ++n);
  }
  ran({"merge", folder});
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
    if (line.find("--unit") == std::string::npos || line.find("--units") != std::string::npos)
      continue;  // one that looks at a file for its parent has the parent's words
    std::ifstream status(entry.path() / "status");
    for (std::string field; std::getline(status, field);) {
      if (field == "PPid:\t" + std::to_string(parent)) workers.push_back(std::stoi(name));
    }
  }
  return workers;
}

TEST_CASE("workers that signals end lose no unit and do none twice") {
  const Bench bench;
  const std::string whole = bench.file("whole.csv");
  const std::string out = bench.file("out.csv");
  const fs::path units = bench.file("units");
  const Words command = bench.sweep({"--resamples", "4000", "--engine", "local", "--workers", "3",
                                     "--units", units.string(), "--out", out});
  ran(bench.sweep({"--resamples", "4000", "--out", whole}));
  std::mt19937 random(7);
  std::map<std::string, fs::file_time_type> finished;  // before the last signal
  RunningProgram run(command);
  int n_killed = 0;
  for (int tries = 0; tries < 400 && run.is_running() && n_killed < 8; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 40));
    const std::vector<pid_t> workers = workers_of(run.pid());
    if (workers.empty()) continue;
    std::error_code none;
    for (auto entry = fs::directory_iterator(units, none); entry != fs::directory_iterator();
         entry.increment(none)) {
      if (entry->path().extension() == ".unit")
        finished.try_emplace(entry->path(), fs::last_write_time(entry->path()));
    }
    ::kill(workers[random() % workers.size()], n_killed % 2 == 0 ? SIGKILL : SIGTERM);
    ++n_killed;
  }
  const RunResult ended = run.wait();
  INFO(ended.err << " after " << n_killed << " kills");
  CHECK(n_killed > 0);
  CHECK(ended.code == 0);  // a worker that is killed, or asked to stop, is replaced
  CHECK(read_file(out) == read_file(whole));
  for (const auto& [file, time] : finished) {
    INFO(file);
    CHECK(fs::last_write_time(file) == time);
  }
}

TEST_CASE("workers that end while they start are no tries of a unit") {
  const Bench bench;
  const std::string whole = bench.file("whole.csv");
  const std::string out = bench.file("out.csv");
  ran(bench.sweep({"--out", whole}));
  RunningProgram run(bench.sweep({"--engine", "local", "--workers", "1", "--out", out}));
  std::set<pid_t> killed;
  for (int tries = 0; tries < 4000 && run.is_running() && killed.size() < 8; ++tries) {
    for (const pid_t worker : workers_of(run.pid())) {
      if (killed.insert(worker).second) ::kill(worker, SIGKILL);  // as soon as it is there
    }
  }
  const RunResult ended = run.wait();
  INFO(ended.err);
  CHECK(killed.size() == 8);  // a unit has five tries
  CHECK(ended.code == 0);
  CHECK(read_file(out) == read_file(whole));
}

TEST_CASE("a unit that a signal ends leaves a whole file or none") {
  const Bench bench;
  const std::string trace = bench.file("long.h5");
  ran({"record", trace, "--max-tokens", "1024"});
  const Words command = {"sweep",    trace,    "--selector",       "quest,quoka,h2o",
                         "--budget", "64,256", "--rows-per-chunk", "all"};
  const Words ids = bench.ids(command);
  const std::string folder = bench.file("units");
  const std::string finished = bench.file("finished");
  bench.do_units(command, {ids[0]}, finished);
  const std::string name = fs::directory_iterator(finished)->path().filename();
  for (const int signal : {SIGTERM, SIGINT, SIGKILL}) {
    RunningProgram run(with(command, {"--unit", ids[0], "--out", folder, "--progress", "json"}));
    REQUIRE(run.waits_for("\"stage\""));  // the work has begun
    run.send(signal);
    const RunResult ended = run.wait();
    INFO(ended.err);
    const bool is_whole = fs::exists(fs::path(folder) / name);  // it was faster
    if (is_whole) CHECK(read_file(folder + "/" + name) == read_file(finished + "/" + name));
    if (!is_whole) {
      CHECK(ended.code == 128 + signal);
      if (signal != SIGKILL) {
        CHECK(n_files(folder) == 0);
        CHECK_HAS(ended.err, "stopped");
      }
    }
    fs::remove_all(folder);
  }
}

TEST_CASE("a folder of other units gets none of this work") {
  const Bench bench;
  const std::string folder = bench.file("units");
  const Words command = bench.sweep();
  const Words ids = bench.ids(command);
  bench.do_units(command, {ids[0]}, folder);
  const Words other = bench.sweep({"--seed", "5", "--units", folder, "--out", bench.file("o.csv")});
  refused(other, 2, {"units of other inputs, options or another version"});
  CHECK(n_files(folder) == 1);
}

TEST_CASE("standard input is not handed to workers") {
  const Bench bench;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "one word after another, ";
  const Words command = {"simulate",     "perplexity", "--text",     "-",
                         "--max-tokens", "64",         "--offset",   "0",
                         "--windows",    "1",          "--selector", "full",
                         "--engine",     "local",      "--out",      bench.file("p.csv")};
  refused(command, 2, {"standard input cannot be handed to workers"}, {text, {}});
}

TEST_CASE("a recording whose name begins with a dash") {
  const Bench bench;
  const std::string here = fs::current_path();
  fs::current_path(bench.dir.path());
  fs::copy_file(bench.trace, "-o.h5");
  const Words sweep = {"sweep", "--selector", "quest", "--budget", "16"};
  const RunResult run = kvscope_run(
      with(sweep, {"--engine", "local", "--workers", "2", "--out", "t.csv", "--", "-o.h5"}));
  const Words kept = with(sweep, {"--units", "kept", "--out", "u.csv", "--", "-o.h5"});
  const RunResult units = kvscope_run(kept);
  const RunResult merged = kvscope_run({"merge", "kept", "--out", "v.csv"});
  fs::current_path(here);
  INFO(run.err << units.err << merged.err);
  CHECK(run.code == 0);
  CHECK(fs::exists(bench.file("t.csv")));
  CHECK(merged.code == 0);
  CHECK(read_file(bench.file("v.csv")) == read_file(bench.file("t.csv")));
}

TEST_CASE("a list of 100000 units") {
  const Bench bench;
  Words command = {"simulate",  "retrieval", "--protocol", "decode",
                   "--lengths", "128",       "--depths",   "10",
                   "--trials",  "1000",      "--selector", "full,quest,quoka,streamingllm",
                   "--budget",  "8,16,32"};
  const RunResult run = ran(with(command, {"--list-units", "--json"}));
  CHECK(run.json().at("n_units") == 100000);
  CHECK(run.json().at("units").size() == 100000);
}

}  // namespace kvscope::test::units_test
