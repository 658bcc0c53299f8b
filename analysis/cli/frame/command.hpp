// What a subcommand is: a name, a text, options, and a run; main, help, completion and manual see
// only this.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "analysis/options/options.hpp"

namespace kvscope::cli {

/// One line of a command's help that can be typed, and what it does.
struct Example {
  std::string command;
  std::string meaning;
};

/// The words of a command.
struct CommandCard {
  std::string name;              // "record" or, in a group, "analyze quoka"
  std::string summary;           // one line without a full stop, for the overview
  std::string description = "";  // a paragraph or two for the command's own help
  std::vector<Example> examples = {};
};

/// One subcommand. The object holds the options' targets, so it is used for one run only.
class Command {
 public:
  virtual ~Command() = default;
  virtual CommandCard card() const = 0;
  std::string name() const { return card().name; }
  virtual void declare(OptionSet& options) = 0;
  /// After declare and parse. `command_line`: as typed, for provenance. Returns an ExitCode.
  virtual int run(const OptionSet& options, const std::string& command_line) = 0;
};

/// Every command in the order of the overview.
std::vector<std::unique_ptr<Command>> all_commands();

/// Names of the groups ("analyze", "bench") with what their commands have in common.
std::vector<std::pair<std::string, std::string>> command_groups();

/// At the end of a command's file: there is the command T, made from what else is given, and its
/// place in the overview. CMake finds these lines.
#define KVSCOPE_COMMAND(place, T, ...)         \
  std::unique_ptr<Command> command_##place() { \
    return std::make_unique<T>(__VA_ARGS__);   \
  }

}  // namespace kvscope::cli
