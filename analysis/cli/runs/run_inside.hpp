// A command of the program run inside this process, its output caught.
#pragma once

#include <exception>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/progress.hpp"

namespace kvscope::cli {

/// What a command printed and how it ended.
struct CommandOutcome {
  int code = 0;
  std::string printed;
  std::string last_note;  // of a command that failed: why
  /// It failed for what the system refused (a write, memory): another start may go well.
  bool is_system = false;

  /// Why it failed, as a sentence without "kvscope: ".
  std::string sentence() const;
};

/// True for errors of the system: everything but what an input or an option is to blame for.
bool is_of_system(const std::exception& error);

/// The command `words` as the program would run it. Progress goes to `progress`.
CommandOutcome run_inside(const std::vector<std::string>& words, const ProgressFn& progress,
                          const std::stop_token& stop);

}  // namespace kvscope::cli
