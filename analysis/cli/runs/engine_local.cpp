// The engine "local": processes of this program on this machine.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>

#include "analysis/cli/frame/child_process.hpp"
#include "analysis/cli/runs/engine.hpp"
#include "analysis/options/exit_code.hpp"
#include "core/base/stopwatch.hpp"

namespace kvscope::cli {
namespace {

/// Workers in a row that a signal ended without one item more being done.
constexpr int kMostDeaths = 20;
/// What is kept of a worker's standard error.
constexpr std::size_t kMostWords = 1 << 16;
/// A worker that finds nothing left ends by itself, unless it hangs.
constexpr double kPatience = 5.0;  // seconds

struct Worker {
  std::unique_ptr<ChildProcess> process;
  std::string err;
};

class LocalRun {
 public:
  explicit LocalRun(const EngineJob& job) : job_(job), n_left_(job.n_left()) {
    for (int w = 0; w < job.workers; ++w) start();
  }

  std::string run() {
    bool is_told = false;
    while (!workers_.empty()) {
      wait_for_words();
      n_left_ = job_.n_left();
      if (is_stopping() && !is_told) {
        for (Worker& worker : workers_) worker.process->send(SIGTERM);
        is_told = true;
      }
      if (n_left_ == 0) end_who_hangs();
    }
    return failure_;
  }

 private:
  bool is_stopping() const { return job_.stop.stop_requested() || !failure_.empty(); }

  void start() { workers_.push_back({std::make_unique<ChildProcess>(job_.words), ""}); }

  void wait_for_words() {
    std::vector<pollfd> ends;
    for (const Worker& worker : workers_) ends.push_back({worker.process->err(), POLLIN, 0});
    ::poll(ends.data(), ends.size(), /*milliseconds=*/200);
    for (std::size_t w = workers_.size(); w-- > 0;) {
      if (ends[w].revents == 0) continue;
      Worker& worker = workers_[w];
      const bool goes_on = read_some(worker.process->err(), worker.err);
      if (worker.err.size() > kMostWords) worker.err.erase(0, worker.err.size() - kMostWords);
      if (goes_on) continue;
      const Worker gone = std::move(worker);
      workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(w));
      bury(gone);
    }
  }

  /// After a worker's end: another one takes its place where a signal ended it.
  void bury(const Worker& worker) {
    const int ended = worker.process->wait();
    // Code 4: some items failed, which the store says.
    if (is_stopping() || ended == kOk || ended == kPartlyFailed) return;
    const bool is_killed = ended >= 256;
    const bool is_stopped = ended == 128 + SIGTERM || ended == 128 + SIGINT;
    if (!is_killed && !is_stopped) {
      failure_ = launcher_text("a worker", ended, worker.err);
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
                             kMostDeaths, end_text(ended));
    }
  }

  void end_who_hangs() {
    if (!all_done_) all_done_.emplace();
    if (all_done_->seconds() < kPatience) return;
    for (Worker& worker : workers_) worker.process->send(SIGKILL);
  }

  const EngineJob& job_;
  std::vector<Worker> workers_;
  std::size_t n_left_;
  std::size_t left_at_death_ = 0;
  int n_deaths_ = 0;
  std::optional<Stopwatch> all_done_;
  std::string failure_;
};

}  // namespace

std::string run_local(const EngineJob& job) {
  return LocalRun(job).run();
}

}  // namespace kvscope::cli
