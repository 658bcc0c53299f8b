#include "analysis/cli/runs/engine.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <future>
#include <optional>
#include <system_error>
#include <utility>

#include "analysis/options/exit_code.hpp"
#include "analysis/options/options.hpp"
#include "core/base/error.hpp"
#include "core/base/lists.hpp"
#include "core/base/new_file.hpp"
#include "core/base/run_program.hpp"
#include "core/base/shell_word.hpp"
#include "core/base/start_program.hpp"
#include "core/base/stopwatch.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

namespace {

struct LauncherEnd : ProgramEnd {
  std::string err;
};

/// What is kept of a program's standard error.
constexpr std::size_t kMostWords = 1 << 16;

/// A launcher, or a worker, to its end; a stop asks it to end its tasks.
LauncherEnd run_launcher(const std::vector<std::string>& words, const std::stop_token& stop) {
  LauncherEnd end;
  static_cast<ProgramEnd&>(end) = kvscope::run_program(
      words,
      [&](const std::string& line) {
        end.err += line + "\n";
        if (end.err.size() > kMostWords) end.err.erase(0, end.err.size() - kMostWords);
      },
      stop, SIGTERM);
  return end;
}

/// The sentence of a kvscope among what was written to standard error, without "kvscope: "; else
/// the last line.
std::string sentence_of(const std::string& written) {
  constexpr std::string_view kOurs = "kvscope: ";
  std::string last;
  for (const std::string& line : split_words(written, '\n')) {
    if (line.starts_with(kOurs) && !line.starts_with("kvscope: left out") &&
        !line.starts_with("kvscope: warning"))
      return line.substr(kOurs.size());
    if (line.find_first_not_of(" \t\r-") != std::string::npos) last = line;
  }
  return last;
}

/// A sentence of a launcher that ended badly; empty if it did not.
std::string launcher_text(std::string_view launcher, int ended, const std::string& written) {
  if (ended == 0) return "";
  const std::string said = sentence_of(written);
  return fmt::format("{} {}{}{}", launcher, end_text(ended), said.empty() ? "" : ": ", said);
}

/// Workers in a row that a signal ended without one item more being done.
constexpr int kMostDeaths = 20;
/// A worker that finds nothing left ends by itself, unless it hangs.
constexpr double kPatience = 5.0;  // seconds

/// Processes on this machine, each heard by a thread. One that a signal ended or asked to stop is
/// replaced.
class LocalRun {
 public:
  explicit LocalRun(const EngineJob& job) : job_(job) {}
  ~LocalRun() { ending_.request_stop(); }  // what still runs is waited for
  LocalRun(const LocalRun&) = delete;
  LocalRun& operator=(const LocalRun&) = delete;

  std::string run() {
    for (int w = 0; w < job_.workers; ++w) start();
    std::optional<Stopwatch> all_done;
    while (!workers_.empty()) {
      workers_.front().wait_for(std::chrono::milliseconds(200));
      for (std::size_t w = workers_.size(); w-- > 0;) {
        if (workers_[w].wait_for(std::chrono::seconds(0)) != std::future_status::ready) continue;
        const LauncherEnd end = workers_[w].get();
        workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(w));
        bury(end);
      }
      if (!all_done && job_.n_left() == 0) all_done.emplace();
      if (is_stopping() || (all_done && all_done->seconds() > kPatience)) ending_.request_stop();
    }
    return failure_;
  }

 private:
  bool is_stopping() const { return job_.stop.stop_requested() || !failure_.empty(); }

  /// Where the system has no thread for another worker, those that run are enough.
  void start() try {
    workers_.push_back(std::async(
        std::launch::async, [this] { return run_launcher(job_.words, ending_.get_token()); }));
  } catch (const std::system_error& error) {
    if (workers_.empty()) throw IoError("a worker cannot be started: {}", error.what());
  }

  /// After a worker's end: another one takes its place where a signal ended it.
  void bury(const LauncherEnd& end) {
    // Code 4: some items failed, which the store says.
    if (is_stopping() || end.ended == kOk || end.ended == kPartlyFailed) return;
    const bool is_killed = end.ended >= 256;
    const bool is_stopped = end.ended == 128 + SIGTERM || end.ended == 128 + SIGINT;
    if (!is_killed && !is_stopped) {
      failure_ = launcher_text("a worker", end.ended, end.err);
      return;
    }
    const std::size_t left = job_.n_left();
    n_deaths_ = left < left_at_death_ ? 1 : n_deaths_ + 1;
    left_at_death_ = left;
    if (left == 0) return;
    if (n_deaths_ < kMostDeaths) {
      start();
    } else {
      failure_ = fmt::format("{} workers ended and nothing more was done, the last one {}",
                             kMostDeaths, end_text(end.ended));
    }
  }

  const EngineJob& job_;
  std::stop_source ending_;
  std::vector<std::future<LauncherEnd>> workers_;
  std::size_t left_at_death_ = 0;
  int n_deaths_ = 0;
  std::string failure_;
};

std::string run_local(const EngineJob& job) {
  return LocalRun(job).run();
}

/// mpirun of Open MPI, one rank per worker. Nothing is linked against MPI: the store is all that
/// ranks share.
std::string run_mpi(const EngineJob& job) {
  // More ranks than cores are the user's choice; a rank has threads of its own and is not bound to
  // a core.
  std::vector<std::string> words = {"mpirun",          "-n",        std::to_string(job.workers),
                                    "--oversubscribe", "--bind-to", "none"};
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), job.words.begin(), job.words.end());
  const LauncherEnd outcome = run_launcher(words, job.stop);
  return launcher_text("mpirun", outcome.ended, outcome.err);
}

constexpr std::size_t kMostOfWords = std::size_t{1} << 24;

/// Of files that Slurm reads and writes.
constexpr std::string_view kSlurmStem = "slurm";

/// A path as an option of sbatch: % begins its own patterns.
std::string output_of(const std::filesystem::path& folder) {
  std::string text;
  for (const char c : folder.string()) text += c == '%' ? "%%" : std::string(1, c);
  return fmt::format("\"{}/{}-%a.out\"", text, kSlurmStem);
}

std::string script_of(const EngineJob& job) {
  const std::string command = command_line_of(job.words, "");
  // exec: the signal reaches the program. 30 seconds before a time limit, since a stop takes
  // moments.
  return fmt::format(
      "#!/bin/sh\n"
      "#SBATCH --job-name=kvscope\n"
      "#SBATCH --array=0-{}\n"
      "#SBATCH --cpus-per-task={}\n"
      "#SBATCH --requeue\n"
      "#SBATCH --open-mode=append\n"
      "#SBATCH --signal=B:TERM@30\n"
      "#SBATCH --output={}\n"
      "exec{}\n",
      job.workers - 1, job.threads, output_of(job.folder), command);
}

/// A batch script of an array job, one task per worker, and sbatch --wait until it has ended. A
/// task that is preempted or ends at its time limit gets SIGTERM, stops between two looks at the
/// stop token, and is queued again; what it had finished is in the store. Partition, account,
/// memory and time come from sbatch's own environment (SBATCH_PARTITION, SBATCH_ACCOUNT,
/// SBATCH_MEM_PER_NODE, SBATCH_TIMELIMIT, ...).
std::string run_slurm(const EngineJob& job) {
  const std::filesystem::path script = job.folder / fmt::format("{}.sh", kSlurmStem);
  write_new_file(script, script_of(job), /*overwrite=*/true);
  LauncherEnd outcome;
  try {
    outcome = run_launcher({"sbatch", "--wait", "--parsable", script.string()}, job.stop);
  } catch (...) {
    remove_quietly(script);
    throw;
  }
  remove_quietly(script);  // sbatch has read it
  const std::string number = outcome.out.substr(0, outcome.out.find_first_of(";\n"));
  // Its tasks stop cleanly.
  if (job.stop.stop_requested() && !number.empty()) run_launcher({"scancel", number}, {});
  if (outcome.ended == 0) {
    for (int task = 0; task < job.workers; ++task)
      remove_quietly(job.folder / fmt::format("{}-{}.out", kSlurmStem, task));
    return "";
  }
  std::string said;  // by the first task that ended with a sentence
  for (int task = 0; said.empty() && task < job.workers; ++task) {
    const fs::path file = job.folder / fmt::format("{}-{}.out", kSlurmStem, task);
    std::error_code error;
    if (fs::is_regular_file(file, error)) said = sentence_of(read_regular_file(file, kMostOfWords));
  }
  return fmt::format("{}{}{}", launcher_text("sbatch", outcome.ended, outcome.err),
                     said.empty() ? "" : ": " + said,
                     number.empty() ? ""
                                    : fmt::format(" (job {}; its words are in {}/{}-*.out)", number,
                                                  job.folder.string(), kSlurmStem));
}

/// Tasks of Ray, started by the Python package's module kvscope.ray_workers. The interpreter is
/// KVSCOPE_PYTHON, else python3; a cluster is found as Ray finds it (RAY_ADDRESS).
std::string run_ray(const EngineJob& job) {
  const char* const named = std::getenv("KVSCOPE_PYTHON");
  std::vector<std::string> words = {named != nullptr && *named != '\0' ? named : "python3", "-m",
                                    "kvscope.ray_workers", std::to_string(job.workers), "--"};
  words.insert(words.end(), job.words.begin(), job.words.end());
  const LauncherEnd outcome = run_launcher(words, job.stop);
  std::string text = launcher_text("ray", outcome.ended, outcome.err);
  if (outcome.err.find("No module named 'kvscope") != std::string::npos)
    text += fmt::format(
        "; this engine needs the Python package (traces/python) and ray in that "
        "interpreter ({}), or another one named by KVSCOPE_PYTHON",
        words.front());
  return text;
}

constexpr std::array<std::pair<std::string_view, Engine>, 4> kEngines = {
    {{"local", run_local}, {"mpi", run_mpi}, {"slurm", run_slurm}, {"ray", run_ray}}};

}  // namespace

Engine find_engine(std::string_view name) {
  for (const auto& [known, engine] : kEngines) {
    if (known == name) return engine;
  }
  throw UsageError("--engine: expected local, mpi, slurm or ray, found \"{}\"", name);
}

}  // namespace kvscope::cli
