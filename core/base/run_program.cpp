#include "core/base/run_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "core/base/start_program.hpp"

namespace kvscope {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostOutput = std::size_t{1} << 20;
constexpr std::size_t kLongestLine = std::size_t{1} << 16;
constexpr int kPollMilliseconds = 100;  // how late a stop may be seen
constexpr std::chrono::seconds kSecondSignal{10};
constexpr std::chrono::seconds kLastSignal{20};

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

/// The signal, a second one, SIGKILL: each when its time has come after the stop.
class Ending {
 public:
  explicit Ending(int signal) : signal_(signal) {}
  void look(pid_t child, const std::stop_token& stop) {
    if (!stop.stop_requested()) return;
    const auto now = Clock::now();
    if (n_sent_ == 0) since_ = now;
    const bool is_due = n_sent_ == 0 || (n_sent_ == 1 && now - since_ >= kSecondSignal) ||
                        (n_sent_ == 2 && now - since_ >= kLastSignal);
    if (!is_due) return;
    ::kill(child, n_sent_ < 2 ? signal_ : SIGKILL);
    ++n_sent_;
  }
  bool is_killed() const { return n_sent_ == 3; }

 private:
  int signal_;
  int n_sent_ = 0;
  Clock::time_point since_;
};

}  // namespace

ProgramEnd run_program(const std::vector<std::string>& words,
                       const std::function<void(const std::string&)>& on_line,
                       const std::stop_token& stop, int stop_signal) {
  Pipe out;
  Pipe err;
  const auto nothing = Descriptor::open("/dev/null", O_RDONLY);
  const pid_t child =
      start_program({words, {}, nothing.get(), out.writing.get(), err.writing.get()});
  out.writing.close();
  err.writing.close();
  ProgramEnd end;
  Ending ending(stop_signal);
  std::string rest;
  std::array<pollfd, 2> ends{pollfd{out.reading.get(), POLLIN, 0},
                             pollfd{err.reading.get(), POLLIN, 0}};
  std::array<char, 16384> piece;
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    ending.look(child, stop);
    if (ending.is_killed()) break;  // what it started may hold the pipes
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
  end.ended = WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

}  // namespace kvscope
