#include "gui/model/runs/child_program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "core/base/error.hpp"

namespace kvscope::gui {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostOutput = std::size_t{1} << 20;
constexpr std::size_t kLongestLine = std::size_t{1} << 16;
constexpr int kPollMilliseconds = 100;  // how late a stop may be seen
constexpr std::chrono::seconds kSecondSignal{10};
constexpr std::chrono::seconds kLastSignal{20};

/// Both ends of a pipe, closed in programs that are started and at the end.
class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0)
      throw IoError(fmt::format("no pipe to a program can be made: {}", std::strerror(errno)));
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int reading() const { return ends_[0]; }
  int writing() const { return ends_[1]; }
  void close_end(std::size_t end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

pid_t start(const std::vector<std::string>& words, const std::filesystem::path& folder,
            const Pipe& out, const Pipe& err) {
  std::vector<std::string> kept = words;
  std::vector<char*> argv;
  for (std::string& word : kept) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.writing(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.writing(), STDERR_FILENO);
  if (!folder.empty()) posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  // A shell that starts a window in the background may have told it to ignore these.
  sigset_t usual;
  sigemptyset(&usual);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&usual, signal);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int problem = posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (problem != 0) {
    throw IoError(fmt::format("{} cannot be started{}: {}", words[0],
                              folder.empty() ? std::string() : " in " + folder.string(),
                              std::strerror(problem)));
  }
  return child;
}

/// Hands on whole lines of what was read; the rest stays in `rest`.
void take_lines(std::string& rest, bool is_last,
                const std::function<void(const std::string&)>& on_line) {
  std::size_t begin = 0;
  for (std::size_t end; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1)
    on_line(rest.substr(begin, end - begin));
  rest.erase(0, begin);
  if (rest.size() > kLongestLine) rest.resize(kLongestLine);
  if (is_last && !rest.empty()) on_line(rest);
}

/// SIGINT, a second one, SIGKILL: each when its time has come after the stop.
class Ending {
 public:
  void look(pid_t child, const std::stop_token& stop) {
    if (!stop.stop_requested()) return;
    const auto now = Clock::now();
    if (n_sent_ == 0) since_ = now;
    const bool is_due = n_sent_ == 0 || (n_sent_ == 1 && now - since_ >= kSecondSignal) ||
                        (n_sent_ == 2 && now - since_ >= kLastSignal);
    if (!is_due) return;
    ::kill(child, n_sent_ < 2 ? SIGINT : SIGKILL);
    ++n_sent_;
  }

 private:
  int n_sent_ = 0;
  Clock::time_point since_;
};

}  // namespace

ProgramEnd run_program(const std::vector<std::string>& words, const std::filesystem::path& folder,
                       const std::function<void(const std::string&)>& on_line,
                       std::stop_token stop) {
  Pipe out;
  Pipe err;
  const pid_t child = start(words, folder, out, err);
  out.close_end(1);
  err.close_end(1);
  ProgramEnd end;
  Ending ending;
  std::string rest;
  std::array<pollfd, 2> ends{pollfd{out.reading(), POLLIN, 0}, pollfd{err.reading(), POLLIN, 0}};
  std::array<char, 16384> piece;
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    ending.look(child, stop);
    if (::poll(ends.data(), ends.size(), kPollMilliseconds) <= 0) continue;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      const ssize_t n = ::read(ends[i].fd, piece.data(), piece.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        ends[i].fd = -1;  // poll leaves it out
        continue;
      }
      const auto size = static_cast<std::size_t>(n);
      if (i == 0) {
        end.out.append(piece.data(), std::min(size, kMostOutput - end.out.size()));
      } else {
        rest.append(piece.data(), size);
        take_lines(rest, /*is_last=*/false, on_line);
      }
    }
  }
  take_lines(rest, /*is_last=*/true, on_line);
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    ending.look(child, stop);
    ::poll(nullptr, 0, kPollMilliseconds / 10);
  }
  end.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

}  // namespace kvscope::gui
