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

/// The words of a command, as Command has them one by one.
struct CommandCard {
  std::string name;
  std::string summary;
  std::string description = "";
  std::vector<Example> examples = {};
};

/// One subcommand. The object holds the options' targets, so it is used for one run only.
class Command {
 public:
  virtual ~Command() = default;
  /// A command has a card, or says its words by the functions below.
  virtual CommandCard card() const { return {}; }
  /// "record" or, in a group, "analyze quoka".
  virtual std::string name() const { return card().name; }
  /// One line without a full stop, for the overview.
  virtual std::string summary() const { return card().summary; }
  /// A paragraph or two for the command's own help; may be empty.
  virtual std::string description() const { return card().description; }
  virtual std::vector<Example> examples() const { return card().examples; }
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
