// The commands of kvscope as forms: what kvscope help --json says of them, filled in, and back into
// the words of a command line.
#pragma once

#include <filesystem>
#include <map>

#include "core/base/fields.hpp"
#include "core/base/shell_word.hpp"

namespace kvscope::gui {

class Session;

/// One option or argument of a command.
struct CommandOption {
  std::string name;         // without dashes; an argument's is in capitals
  std::string placeholder;  // "N"; empty for a flag
  std::string help;
  std::string preset;  // what holds if it is not given; may be empty
  std::vector<std::string> choices;
  bool is_argument = false;
  bool is_file = false;  // or a folder
  bool is_required = false;
  bool is_flag() const { return placeholder.empty(); }
  bool is_folder() const { return placeholder == "DIR"; }
};

struct CommandSpec {
  std::string name;     // "analyze quest"
  std::string summary;  // one line
  std::string description;
  std::string other_words;             // what people call it
  std::vector<CommandOption> options;  // arguments first
  const CommandOption* find(std::string_view option) const;
};

/// Reads what kvscope help --json prints: the commands that work for a while, which say how far
/// they are (--progress). Throws FormatError.
std::vector<CommandSpec> read_commands(const std::string& json);

/// What was filled in, by option: "true" for a flag that is on; empty values are not given.
using CommandValues = std::map<std::string, std::string>;

/// The words after "kvscope": the command, its arguments in their order, then the options.
std::vector<std::string> command_words(const CommandSpec& command, const CommandValues& values);
/// The same from what is known already: arguments in their order, and options by name; one with an
/// empty value is a flag.
using CommandOptions = std::vector<std::pair<std::string, std::string>>;
std::vector<std::string> command_words(std::string_view command,
                                       const std::vector<std::string>& arguments,
                                       const CommandOptions& options);

/// What a command should be asked about what is open: its trace, the second one as the draft, the
/// selected methods and budget, and a file beside the trace that is not there yet; of a recording
/// the embedded model and as much as is looked at in a minute.
CommandValues suggested_values(const CommandSpec& command, const Session& session);

/// `wanted`, or the first of name-2, name-3, ... that is neither there nor being recorded (.part).
std::filesystem::path free_file(const std::filesystem::path& wanted);

}  // namespace kvscope::gui
