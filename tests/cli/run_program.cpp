#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>

namespace kvscope::test {

namespace {

int memory_file(const std::string& content = "") {
  const int fd = memfd_create("kvscope-test", MFD_CLOEXEC);
  if (fd < 0) throw std::runtime_error("memfd_create failed");
  if (!content.empty()) {
    std::size_t done = 0;
    while (done < content.size()) {
      const ssize_t n = ::write(fd, content.data() + done, content.size() - done);
      if (n <= 0) throw std::runtime_error("write to a memory file failed");
      done += static_cast<std::size_t>(n);
    }
    ::lseek(fd, 0, SEEK_SET);
  }
  return fd;
}

std::string read_all(int fd) {
  std::string text;
  ::lseek(fd, 0, SEEK_SET);
  char buffer[1 << 16];
  for (ssize_t n = 0; (n = ::read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  return text;
}

}  // namespace

nlohmann::json RunResult::json() const {
  INFO("standard output: " << out << "\nstandard error: " << err);
  const auto parsed = nlohmann::json::parse(out, nullptr, /*allow_exceptions=*/false);
  REQUIRE_FALSE(parsed.is_discarded());
  return parsed;
}

bool RunResult::err_is_one_line() const {
  return err.starts_with("kvscope: ") && std::ranges::count(err, '\n') == 1 && err.back() == '\n';
}

RunningProgram::RunningProgram(const std::vector<std::string>& args, const RunSetup& setup)
    : out_fd_(memory_file()), err_fd_(memory_file()) {
  const int in_fd = memory_file(setup.input);
  int broken[2] = {-1, -1};
  if (setup.break_stdout) {
    if (::pipe2(broken, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
    ::close(broken[0]);
  }
  Words words = with({testing::kvscope_program().string()}, args);
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    ::dup2(in_fd, 0);
    if (setup.close_stdout) {
      ::close(1);
    } else {
      ::dup2(setup.break_stdout ? broken[1] : out_fd_, 1);
    }
    ::dup2(err_fd_, 2);
    for (const auto& variable : setup.environment) ::putenv(const_cast<char*>(variable.c_str()));
    ::signal(SIGPIPE, SIG_DFL);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(in_fd);
  if (broken[1] >= 0) ::close(broken[1]);
}

RunningProgram::~RunningProgram() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (out_fd_ >= 0) ::close(out_fd_);
  if (err_fd_ >= 0) ::close(err_fd_);
}

void RunningProgram::send(int signal) const {
  ::kill(pid_, signal);
}

bool RunningProgram::is_running() const {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

bool RunningProgram::waits_for(const std::string& words) const {
  for (;;) {
    const bool goes_on = is_running();
    char buffer[1 << 16];  // from the beginning, whatever the program has written meanwhile
    const ssize_t n = ::pread(err_fd_, buffer, sizeof buffer, 0);
    if (n > 0 &&
        std::string_view(buffer, static_cast<std::size_t>(n)).find(words) != std::string_view::npos)
      return true;
    if (!goes_on) return false;
    ::usleep(1000);
  }
}

RunResult RunningProgram::wait() {
  int status = 0;
  rusage usage{};
  ::wait4(pid_, &status, 0, &usage);
  pid_ = -1;
  RunResult result;
  result.max_rss_kib = usage.ru_maxrss;
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = read_all(out_fd_);
  result.err = read_all(err_fd_);
  return result;
}

RunResult kvscope_run(const std::vector<std::string>& args, const RunSetup& setup) {
  return RunningProgram(args, setup).wait();
}

RunResult ran(const Words& args, const RunSetup& setup) {
  RunResult run = kvscope_run(args, setup);
  CAPTURE(args, run.err);
  REQUIRE(run.code == 0);
  return run;
}

RunResult refused(const Words& args, int code, const Words& says, const RunSetup& setup) {
  RunResult run = kvscope_run(args, setup);
  CAPTURE(args, run.err);
  CHECK(run.code == code);
  CHECK(run.err_is_one_line());
  for (const std::string& words : says) CHECK_HAS(run.err, words);
  return run;
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace kvscope::test
