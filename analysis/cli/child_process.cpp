#include "analysis/cli/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "core/base/error.hpp"

extern char** environ;

namespace kvscope::cli {

namespace {

/// A pipe that no other child inherits; [0] is read, [1] is written.
std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw IoError(fmt::format("cannot open a pipe: {}", std::strerror(errno)));
  return ends;
}

void close_quietly(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& argv) {
  auto in = make_pipe();
  auto out = make_pipe();
  auto err = make_pipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  // The signals that this program handles are its own affair.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&handled, signal);
  posix_spawnattr_setsigdefault(&attributes, &handled);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const int failed = ::posix_spawnp(&pid_, words[0], &actions, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(in[0]);
  ::close(out[1]);
  ::close(err[1]);
  in_ = in[1];
  out_ = out[0];
  err_ = err[0];
  if (failed == 0) return;
  pid_ = -1;
  for (int* fd : {&in_, &out_, &err_}) close_quietly(*fd);
  throw IoError(fmt::format("cannot start {}: {}", argv[0], std::strerror(failed)));
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    send(SIGKILL);
    wait();
  }
  for (int* fd : {&in_, &out_, &err_}) close_quietly(*fd);
}

bool ChildProcess::write_line(const std::string& line) {
  const std::string text = line + "\n";  // shorter than a pipe holds: written whole or not at all
  return in_ >= 0 && ::write(in_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

void ChildProcess::close_input() {
  close_quietly(in_);
}

void ChildProcess::send(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

int ChildProcess::wait() {
  int status = 0;
  while (pid_ > 0 && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string end_text(int ended) {
  return ended >= 256 ? fmt::format("was ended by signal {}", ended - 256)
                      : fmt::format("ended with code {}", ended);
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
  bool is_told = false;
  std::array<pollfd, 2> ends = {pollfd{child.out(), POLLIN, 0}, pollfd{child.err(), POLLIN, 0}};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    ::poll(ends.data(), ends.size(), /*milliseconds=*/100);
    if (stop.stop_requested() && !is_told) {
      child.send(SIGTERM);
      is_told = true;
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
  if (error) throw IoError(fmt::format("cannot find this program's file: {}", error.message()));
  return file.string();
}

}  // namespace kvscope::cli
