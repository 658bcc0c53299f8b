#include "analysis/cli/frame/child_process.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/stopwatch.hpp"

namespace kvscope::cli {

ChildProcess::ChildProcess(const std::vector<std::string>& argv) {
  Pipe in;
  Pipe out;
  Pipe err;
  pid_ = start_program({argv, {}, in.reading.get(), out.writing.get(), err.writing.get()});
  in_ = std::move(in.writing);
  out_ = std::move(out.reading);
  err_ = std::move(err.reading);
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    send(SIGKILL);
    wait();
  }
}

bool ChildProcess::write_line(const std::string& line) {
  const std::string text = line + "\n";  // shorter than a pipe holds: written whole or not at all
  return in_.get() >= 0 &&
         ::write(in_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

void ChildProcess::close_input() {
  in_.close();
}

void ChildProcess::send(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

int ChildProcess::wait() {
  return pid_ > 0 ? wait_for_program(std::exchange(pid_, -1)) : 0;
}

std::string sentence_of(const std::string& written) {
  constexpr std::string_view kOurs = "kvscope: ";
  std::string last;
  for (std::size_t begin = 0; begin < written.size();) {
    const std::size_t end = std::min(written.find('\n', begin), written.size());
    const std::string line = written.substr(begin, end - begin);
    if (line.starts_with(kOurs) && !line.starts_with("kvscope: left out") &&
        !line.starts_with("kvscope: warning"))
      return line.substr(kOurs.size());
    if (line.find_first_not_of(" \t\r-") != std::string::npos) last = line;
    begin = end + 1;
  }
  return last;
}

bool read_some(int fd, std::string& text) {
  char buffer[4096];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  text.append(buffer, static_cast<std::size_t>(n));
  return n > 0;
}

ChildOutcome run_child(const std::vector<std::string>& argv, const std::stop_token& stop) {
  ChildProcess child(argv);
  child.close_input();
  ChildOutcome outcome;
  constexpr double kPatience = 20.0;  // seconds for a launcher to end its tasks
  std::optional<Stopwatch> told;
  std::array<pollfd, 2> ends = {pollfd{child.out(), POLLIN, 0}, pollfd{child.err(), POLLIN, 0}};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    ::poll(ends.data(), ends.size(), /*milliseconds=*/100);
    if (stop.stop_requested() && !told) {
      child.send(SIGTERM);
      told.emplace();
    }
    if (told && told->seconds() > kPatience) {
      child.send(SIGKILL);
      break;  // what it started may hold the pipes
    }
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      if (!read_some(ends[i].fd, i == 0 ? outcome.out : outcome.err)) ends[i].fd = -1;
    }
  }
  outcome.ended = child.wait();
  return outcome;
}

std::string this_program() {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw IoError("cannot find this program's file: {}", error.message());
  // Python, which has the commands as a module, names a program that runs them.
  if (const char* named = std::getenv("KVSCOPE_COMMAND"); named && file.filename() != "kvscope")
    return named;
  return file.string();
}

}  // namespace kvscope::cli
