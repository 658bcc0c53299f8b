#include "analysis/cli/frame/signals.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <system_error>

#include "analysis/cli/frame/host.hpp"
#include "core/base/error.hpp"
#include "core/base/new_file.hpp"

namespace kvscope::cli {

namespace {

std::atomic<int> received{0};
std::atomic<int> pipe_end{-1};  // where the handler writes

static_assert(std::atomic<int>::is_always_lock_free, "the handler uses it");

/// A terminal's Ctrl-C reaches workers too, and at once the program that started them tells them
/// the same: within this time a second signal is the same wish.
constexpr std::int64_t kSameWish = 500;       // milliseconds
constexpr std::int64_t kMilliseconds = 1000;  // of a second
std::atomic<std::int64_t> first_at{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "the handler uses it");

constexpr char kSignal = 's';
constexpr char kQuit = 'q';

void send(char what) {
  const int fd = pipe_end.load();
  // A full pipe has bytes enough to wake the watcher.
  if (fd >= 0 && ::write(fd, &what, 1) < 0) return;
}

/// Dies of it as without a handler, but for temporary files.
extern "C" void end_by_signal(int signal) {
  remove_unfinished_files();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

extern "C" void on_stop_signal(int signal) {
  const int saved = errno;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  // The time decides which one is the first: another thread may get the second at this moment.
  const std::int64_t at = now.tv_sec * kMilliseconds + now.tv_nsec / 1'000'000 + 1;  // never 0
  std::int64_t first = 0;
  if (first_at.compare_exchange_strong(first, at) || at - first < kSameWish) {
    received.store(signal);
  } else {
    end_by_signal(signal);  // the second one
  }
  send(kSignal);
  errno = saved;
}

}  // namespace

void clean_up_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action.sa_handler = end_by_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

StopOnSignal::StopOnSignal() : token_(source_.get_token()) {
  if (const Host* const from = host()) {
    token_ = from->stop_token();
    return;
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw IoError("cannot open a pipe: {}", std::strerror(errno));
  const auto watch = [this, read_end = ends[0]] {
    char what = 0;
    for (;;) {
      const ssize_t n = ::read(read_end, &what, 1);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0 || what == kQuit) break;
      source_.request_stop();
    }
    ::close(read_end);
  };
  try {
    watcher_ = std::jthread(watch);
  } catch (const std::system_error&) {
    // A limit on processes or memory. Signals end the program at once then, which files survive.
    for (int end : ends) ::close(end);
    return;
  }
  pipe_end.store(ends[1]);
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  // Also where SIGINT is ignored, as it is for background jobs of a script: kill -INT is meant
  // there too.
  ::sigaction(SIGINT, &action, &before_[0]);
  ::sigaction(SIGTERM, &action, &before_[1]);
}

StopOnSignal::~StopOnSignal() {
  if (!watcher_.joinable()) return;
  ::sigaction(SIGINT, &before_[0], nullptr);
  ::sigaction(SIGTERM, &before_[1], nullptr);
  send(kQuit);
  watcher_.join();
  ::close(pipe_end.exchange(-1));
}

int StopOnSignal::exit_code() {
  const int signal = received.load();
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace kvscope::cli
