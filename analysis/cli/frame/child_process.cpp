#include "analysis/cli/frame/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

namespace kvscope::cli {

ChildProcess::ChildProcess(const std::vector<std::string>& argv) {
  const Descriptor nothing = Descriptor::open("/dev/null", O_RDWR);
  Pipe err;
  pid_ = start_program({argv, {}, nothing.get(), nothing.get(), err.writing.get()});
  err_ = std::move(err.reading);
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    send(SIGKILL);
    wait();
  }
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
