// The engine "local": processes of this program on this machine.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <map>
#include <memory>
#include <set>

#include "analysis/cli/child_process.hpp"
#include "analysis/cli/engine.hpp"
#include "analysis/cli/unit_source.hpp"
#include "analysis/options/exit_code.hpp"
#include "analysis/units/unit_leases.hpp"
#include "core/base/stopwatch.hpp"

namespace kvscope::cli {
namespace {

/// A unit that ended as many workers by a signal is given up: it needs more memory than there is,
/// say. The others go on.
constexpr int kMostTries = 5;
/// Workers in a row that a signal ended before they listened.
constexpr int kMostStarts = 20;
/// What is kept of a worker's standard error.
constexpr std::size_t kMostWords = 1 << 16;

/// A worker whose unit another one has finished stops by itself, unless it hangs.
constexpr double kPatience = 5.0;  // seconds

struct Worker {
  std::unique_ptr<ChildProcess> process;
  bool listens = false;
  bool is_sent_home = false;  // nothing is left for it
  std::string at;             // the unit it is at; empty: none
  Stopwatch since;            // it got it
  std::string out;            // what it said, as far as it is no whole line
  std::string err;
};

class LocalRun {
 public:
  explicit LocalRun(const EngineJob& job) : job_(job), todo_(job.todo.begin(), job.todo.end()) {
    const auto n = std::min<std::size_t>(static_cast<std::size_t>(job.workers), job.todo.size());
    for (std::size_t w = 0; w < n; ++w) workers_.push_back(start());
  }

  std::string run() {
    bool is_told = false;
    while (!workers_.empty()) {
      wait_for_words();
      const bool ends = job_.stop.stop_requested() || !failure_.empty();
      if (ends && !is_told) {
        todo_.clear();
        for (Worker& worker : workers_) worker.process->send(SIGTERM);
        is_told = true;
      }
      for (std::size_t w = 0; w < workers_.size();) {
        if (listen(workers_[w])) {
          ++w;
          continue;
        }
        Worker gone = std::move(workers_[w]);
        workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(w));
        bury(gone, ends);
      }
      if (!ends && todo_.empty()) end_game();
    }
    return failure_;
  }

 private:
  Worker start() {
    Worker worker{.process = std::make_unique<ChildProcess>(worker_words(job_, "-"))};
    return worker;
  }

  void give_next(Worker& worker) {
    if (todo_.empty()) return;
    give(worker, todo_.front());
    todo_.pop_front();
  }

  static void give(Worker& worker, const std::string& id) {
    worker.at = id;
    worker.since = Stopwatch();
    worker.process->write_line(id);  // if it is dead, its end says so
  }

  static bool is_idle(const Worker& worker) {
    return worker.listens && worker.at.empty() && !worker.is_sent_home;
  }

  /// The workers at a unit.
  std::vector<Worker*> workers_at(const std::string& id) {
    std::vector<Worker*> at;
    for (Worker& worker : workers_) {
      if (worker.at == id) at.push_back(&worker);
    }
    return at;
  }

  /// Nothing is left to give out: who is free takes what another has been at for long, or goes home
  /// once that cannot come any more. Who hangs at what is finished is ended.
  void end_game() {
    Worker* longest = nullptr;  // alone at its unit
    for (Worker& worker : workers_) {
      if (worker.at.empty()) continue;
      if (done_.contains(worker.at)) {
        if (finished_at_[worker.at].seconds() > kPatience) worker.process->send(SIGKILL);
      } else if (workers_at(worker.at).size() == 1 &&
                 (longest == nullptr || worker.since.seconds() > longest->since.seconds())) {
        longest = &worker;
      }
    }
    for (Worker& worker : workers_) {
      if (!is_idle(worker)) continue;
      const double mean = done_.empty() ? 0.0 : seconds_ / static_cast<double>(done_.size());
      if (longest == nullptr) {
        worker.is_sent_home = true;
        worker.process->close_input();  // it ends
      } else if (is_straggler(longest->since.seconds(), mean)) {
        give(worker, longest->at);
        return;  // one in a round
      }
    }
  }

  void wait_for_words() {
    std::vector<pollfd> ends;
    for (const Worker& worker : workers_) {
      ends.push_back({worker.process->out(), POLLIN, 0});
      ends.push_back({worker.process->err(), POLLIN, 0});
    }
    ::poll(ends.data(), ends.size(), /*milliseconds=*/100);
    ready_.clear();
    for (const pollfd& end : ends) ready_[end.fd] = end.revents != 0;
  }

  /// Hears what a worker says; false once it says no more.
  bool listen(Worker& worker) {
    if (ready_[worker.process->err()]) {
      read_some(worker.process->err(), worker.err);
      if (worker.err.size() > kMostWords) worker.err.erase(0, worker.err.size() - kMostWords);
    }
    if (!ready_[worker.process->out()]) return true;
    const bool goes_on = read_some(worker.process->out(), worker.out);
    for (std::size_t end = 0; (end = worker.out.find('\n')) != std::string::npos;) {
      hear(worker, worker.out.substr(0, end));
      worker.out.erase(0, end + 1);
    }
    return goes_on;
  }

  void hear(Worker& worker, const std::string& line) {
    if (line == kSaysReady) {
      worker.listens = true;
      n_deaf_ = 0;
      give_next(worker);
    } else if (!worker.at.empty() &&
               (line == worker.at || line == worker.at + std::string(kSaysFailed))) {
      if (!done_.contains(worker.at)) seconds_ += worker.since.seconds();
      tell_done(std::exchange(worker.at, std::string()));
      give_next(worker);
    }
  }

  void tell_done(const std::string& id) {
    if (!done_.insert(id).second) return;
    finished_at_[id] = Stopwatch();
    if (job_.progress)
      job_.progress({"units", static_cast<std::int64_t>(done_.size()),
                     static_cast<std::int64_t>(job_.todo.size()), "units"});
  }

  /// After a worker's end: its unit goes back to the others, and another worker takes its place.
  void bury(Worker& worker, bool ends) {
    while (read_some(worker.process->err(), worker.err) && worker.err.size() < kMostWords) {
    }
    ready_.erase(worker.process->out());  // the next worker may get the same descriptors
    ready_.erase(worker.process->err());
    const int ended = worker.process->wait();
    // Code 4: it did all that it was given, and some of it failed, which the folder says.
    const bool is_done =
        worker.at.empty() && worker.listens && (ended == kOk || ended == kPartlyFailed);
    if (ends || is_done) return;
    const bool is_killed = ended >= 256;
    const bool is_stopped = ended == 128 + SIGTERM || ended == 128 + SIGINT;
    if (!is_killed && !is_stopped) {
      failure_ = launcher_text("a worker", ended, worker.err);
      if (failure_.empty()) failure_ = "a worker ended before its work did";
      return;
    }
    if (!worker.listens && ++n_deaf_ >= kMostStarts) {
      failure_ = fmt::format("{} workers in a row ended while they started, the last one {}",
                             kMostStarts, end_text(ended));
      return;
    }
    if (is_killed && !worker.at.empty() && ++tries_[worker.at] >= kMostTries) {
      job_.give_up(worker.at, fmt::format("it ended {} workers, the last one {}", kMostTries,
                                          end_text(ended)));
      tell_done(std::exchange(worker.at, std::string()));
    }
    const bool is_lost =
        !worker.at.empty() && !done_.contains(worker.at) && workers_at(worker.at).empty();
    if (is_lost) todo_.push_front(worker.at);
    const auto idle = std::ranges::find_if(workers_, is_idle);
    if (todo_.empty()) return;
    if (idle != workers_.end())
      give_next(*idle);
    else
      workers_.push_back(start());
  }

  const EngineJob& job_;
  std::deque<std::string> todo_;
  std::vector<Worker> workers_;
  std::map<int, bool> ready_;         // descriptors that have something to say
  std::map<std::string, int> tries_;  // how many workers a unit ended
  int n_deaf_ = 0;                    // workers in a row that ended before they listened
  std::set<std::string> done_;
  std::map<std::string, Stopwatch> finished_at_;
  double seconds_ = 0.0;  // of finished units
  std::string failure_;
};

}  // namespace

std::string run_local(const EngineJob& job) {
  return LocalRun(job).run();
}

}  // namespace kvscope::cli
