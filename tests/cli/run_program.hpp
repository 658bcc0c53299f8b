// Runs the real program as a shell would and keeps what it said: what tests of it begin with.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/recordings.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test {

struct RunResult {
  int code = 0;  // exit code; 128 + signal if a signal ended it
  std::string out;
  std::string err;
  long max_rss_kib = 0;  // largest resident memory

  /// Standard output as JSON; fails the test if it is anything else.
  nlohmann::json json() const;
  /// True if standard error is one line that begins with "kvscope: ".
  bool err_is_one_line() const;
};

struct RunSetup {
  std::string input;                     // standard input
  std::vector<std::string> environment;  // "NAME=value", added to this process's
  bool close_stdout = false;             // start with descriptor 1 closed
  bool break_stdout = false;             // standard output is a pipe that nobody reads
};

/// kvscope with these arguments, to its end.
RunResult kvscope_run(const std::vector<std::string>& args, const RunSetup& setup = {});

using Words = std::vector<std::string>;

/// kvscope with these arguments, which has to end well.
RunResult ran(const Words& args, const RunSetup& setup = {});

/// kvscope with these arguments, which has to end with this code and one line that has all of
/// these words.
RunResult refused(const Words& args, int code, const Words& says, const RunSetup& setup = {});

/// The words of a command and further ones.
Words with(Words words, const Words& more);

/// A kvscope that runs beside the test; killed at destruction if it still runs.
class RunningProgram {
 public:
  explicit RunningProgram(const std::vector<std::string>& args, const RunSetup& setup = {});
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  void send(int signal) const;
  bool is_running() const;
  pid_t pid() const { return pid_; }
  /// True once standard error has these words; false if the program ends without them.
  bool waits_for(const std::string& words) const;
  RunResult wait();

 private:
  pid_t pid_ = -1;
  int out_fd_ = -1;  // temporary files, so that nobody has to read while it runs
  int err_fd_ = -1;
};

}  // namespace kvscope::test
