// A command of the program run inside this process, its output caught.
#pragma once

#include <exception>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "analysis/papers/page.hpp"
#include "core/base/progress.hpp"

namespace kvscope::cli {

/// What a command printed and how it ended.
struct CommandOutcome {
  int code = 0;
  std::string printed;
  std::string last_note;  // of a command that failed: why
  /// It failed for what the system refused (a write, memory): another start may go well.
  bool is_system = false;
  bool is_write_refused = false;  // WriteRefused

  /// Why it failed, as a sentence without "kvscope: ".
  std::string sentence() const;
};

/// True for errors of the system: everything but what an input or an option is to blame for.
bool is_of_system(const std::exception& error);

/// The command `words` as the program would run it. Progress goes to `progress`.
CommandOutcome run_inside(const std::vector<std::string>& words, const ProgressFn& progress,
                          const std::stop_token& stop);

/// What a command "figure KIND ..." or "table ..." (without --format and --out) draws: a figure's
/// files lie in folder/place/, a table's are folder/place.md and .tex. Without the command itself.
/// Throws Interrupted, and IoError or ConfigError with the command's sentence.
papers::DrawnPicture drawn_inside(const std::vector<std::string>& words,
                                  const std::filesystem::path& folder, const std::string& place,
                                  bool overwrite, const std::stop_token& stop);

}  // namespace kvscope::cli
