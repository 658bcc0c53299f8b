// Another program, run to its end: its lines are handed on as they come, and a stop asks it to end.
#pragma once

#include <csignal>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

namespace kvscope {

/// How a program ended and what it said.
struct ProgramEnd {
  int ended = 0;    // as wait_for_program
  std::string out;  // standard output, at most its first MiB

  int signal() const { return ended >= 256 ? ended - 256 : 0; }       // 0: none ended it
  int code() const { return ended >= 256 ? 128 + signal() : ended; }  // as shells say it
};

/// Runs words[0] (looked for in PATH if it has no slash) with the other words as arguments, in this
/// folder, without an input. `on_line` gets every line of standard error, in this thread. A stop
/// sends the signal, once more after 10 s, and SIGKILL after 20 s. Throws IoError if the program
/// cannot be started.
ProgramEnd run_program(const std::vector<std::string>& words,
                       const std::function<void(const std::string&)>& on_line,
                       const std::stop_token& stop, int stop_signal = SIGINT);

}  // namespace kvscope
