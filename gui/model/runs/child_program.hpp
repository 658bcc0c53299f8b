// Another program, run to its end from a job: its lines are handed on as they come, and a stop asks
// it to end as Ctrl-C does.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/progress.hpp"
#include "gui/model/jobs/jobs.hpp"

namespace kvscope::gui {

/// How a program ended and what it said.
struct ProgramEnd {
  int code = 0;     // its exit code; 128 + signal if a signal ended it
  int signal = 0;   // 0: none did
  std::string out;  // standard output, at most its first MiB
};

/// A line of --progress json; empty for anything else.
std::optional<Progress> progress_of(const std::string& line);

/// What kvscope said as a sentence for the window: without its own name, and without the way to its
/// help, which leads to a terminal.
std::string sentence_of(std::string line);

/// Runs words[0] (looked for in PATH if it has no slash) with the other words as arguments, in this
/// folder, without an input. `on_line` gets every line of standard error, in this
/// thread. A stop sends SIGINT, once more after 10 s, and SIGKILL after 20 s. Throws IoError if the
/// program cannot be started.
ProgramEnd run_program(const std::vector<std::string>& words,
                       const std::function<void(const std::string&)>& on_line,
                       std::stop_token stop);

/// What it printed; lines of --progress json are the job's progress. Throws ConfigError with what
/// it says where it fails, Interrupted on a stop.
std::string answer_of_program(const std::vector<std::string>& words, JobContext& job);

}  // namespace kvscope::gui
