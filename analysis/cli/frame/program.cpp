#include "analysis/cli/frame/program.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <new>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/help.hpp"
#include "analysis/cli/frame/help_search.hpp"
#include "analysis/cli/frame/host.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/signals.hpp"
#include "analysis/cli/inspect/next_steps.hpp"
#include "analysis/options/instead.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/new_file.hpp"
#include "core/base/read_files.hpp"
#include "core/base/shell_word.hpp"
#include "core/base/suggest.hpp"
#include "core/base/version.hpp"
#include "traces/hdf5_library.hpp"

namespace kvscope::cli {
namespace {

bool is_help(const std::string& word) {
  return word == "--help" || word == "-h";
}

// What of the command line named the command; errors of usage point to its help.
struct Chosen {
  std::unique_ptr<Command> command;
  std::size_t n_words = 0;
};

// One or two words, the longer match first. Nothing if the words are a group without a known kind.
std::optional<Chosen> find_command(const Words& words) {
  for (std::size_t n : {std::size_t{2}, std::size_t{1}}) {
    if (words.size() < n) continue;
    const std::string name = n == 2 ? words[0] + " " + words[1] : words[0];
    for (auto& command : all_commands()) {
      if (command->name() == name) return Chosen{std::move(command), n};
    }
  }
  return std::nullopt;
}

/// Of a line that is a file's name alone: what that is, and what takes it.
bool tell_about_file(const Words& words) {
  if (words.size() != 1 || !std::filesystem::exists(words[0])) return false;
  print(file_and_next_steps(words[0]));
  return true;
}

/// The word that is nearly it, or what `kvscope help` of it would name first.
std::string did_you_mean_or_about(const std::string& word, const Words& known,
                                  const std::string& question) {
  if (const auto instead = instead_of(question); !instead.empty())
    return fmt::format(". Instead: {}", instead);
  const std::string near = did_you_mean(word, known);
  if (!near.empty()) return near;
  if (is_about_window(question)) return ". The window is a program of its own: kvscope-explorer";
  const Words about = commands_about(question, 2);
  return about.empty() ? "" : fmt::format(". About it: kvscope {}", fmt::join(about, ", kvscope "));
}

[[noreturn]] void throw_unknown(const Words& words) {
  for (const auto& [group, meaning] : command_groups()) {
    if (words[0] != group) continue;
    Words kinds;
    for (const auto& command : all_commands()) {
      if (command->name().starts_with(group + " "))
        kinds.push_back(command->name().substr(group.size() + 1));
    }
    if (words.size() < 2 || words[1].starts_with('-'))
      throw UsageError("{} needs a kind: one of {}", group, fmt::join(kinds, ", "));
    throw UsageError("{}: unknown kind \"{}\", expected one of {}{}", group, words[1],
                     fmt::join(kinds, ", "),
                     did_you_mean_or_about(words[1], kinds, words[0] + " " + words[1]));
  }
  Words names;
  for (const auto& [group, meaning] : command_groups()) names.push_back(group);
  for (const auto& command : all_commands()) {
    if (command->name().find(' ') == std::string::npos) names.push_back(command->name());
  }
  if (words[0].starts_with('-'))
    throw UsageError("unknown option {}{}", words[0],
                     option_meant(words[0].substr(words[0].starts_with("--") ? 2 : 1),
                                  {"help", "version"}, "--"));
  std::error_code ignored;
  if (std::filesystem::exists(words[0], ignored))
    throw UsageError(
        "unknown command {}: it is a file, of which kvscope {} alone says what takes it", words[0],
        shell_word(words[0]));
  const bool is_path = words[0].find_first_of("./") != std::string::npos;
  throw UsageError("unknown command {}{}", words[0],
                   is_path ? ", and there is no file of that name"
                           : did_you_mean_or_about(words[0], names, words[0]));
}

int run(const Words& words, std::string& help_hint) {
  if (words.empty()) {
    print(overview_text());
    throw UsageError("no command given");
  }
  if (is_help(words[0])) {
    print(overview_text());
    return kOk;
  }
  if (words[0] == "--version") {
    print("{}\n", writer_name());
    return kOk;
  }
  auto chosen = find_command(words);
  if (!chosen) {
    for (const auto& [group, meaning] : command_groups()) {
      if (words[0] != group) continue;
      help_hint = fmt::format("kvscope {} --help", group);
      if (words.size() > 1 && is_help(words[1])) {
        print(group_text(group));
        return kOk;
      }
    }
    if (tell_about_file(words)) return kOk;
    throw_unknown(words);
  }
  Command& command = *chosen->command;
  help_hint = fmt::format("kvscope {} --help", command.name());
  OptionSet options;
  command.declare(options);
  try {
    options.parse(std::span(words).subspan(chosen->n_words));
    if (options.wants_help()) {
      print(command_text(command, options));
      return kOk;
    }
    return command.run(options, command_line_of(words));
  } catch (const UsageError&) {
    const std::string wrong = options.wrong_file();  // which the other mistake is due to
    if (!wrong.empty()) throw UsageError(wrong);
    throw;
  }
}

// One line, whatever the message holds.
int fail(int code, std::string_view message, const std::exception& error) {
  if (Host* const to = host()) to->ended_by(error);
  std::string line = fmt::format("kvscope: {}", short_message(terminal_text(message)));
  for (char& c : line) c = c == '\n' || c == '\r' ? ' ' : c;
  note(line);
  return code;
}

// In a signal handler: nothing but system calls.
void end_with(const char* file, const char* what) {
  remove_unfinished_files();
  for (const char* part : {"kvscope: ", file, what}) {
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  ::_exit(kInputError);
}

void end_after_crash(const char* file) {
  end_with(file, ": the HDF5 library crashed on it: the file is damaged\n");
}

void end_after_loss(const char* file) {
  end_with(file, ": cannot be read any more: it was cut while it was in use, or its disk failed\n");
}

}  // namespace

int run_program(const std::vector<std::string>& words) {
  const ReadFiles inputs;  // of this command alone, which may run within another one
  std::string help_hint = "kvscope --help";
  try {
    return run(words, help_hint);
  } catch (const OutputClosed&) {
    return kOk;  // the reader had enough
  } catch (const UsageError& error) {
    return fail(kUsageError, fmt::format("{} (see {})", error.what(), help_hint), error);
  } catch (const PartlyFailed& error) {
    return fail(kPartlyFailed, error.what(), error);
  } catch (const ConfigError& error) {
    return fail(kUsageError, error.what(), error);
  } catch (const Interrupted& error) {
    const int code = StopOnSignal::exit_code();
    return fail(code != 0 ? code : kInterrupted, error.what(), error);
  } catch (const Error& error) {
    return fail(kInputError, error.what(), error);
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(kInputError, fmt::format("{}: {}", error.path1().string(), error.code().message()),
                error);
  } catch (const std::bad_alloc& error) {
    return fail(kInternalError, "out of memory", error);
  } catch (const std::exception& error) {
    return fail(kInternalError, fmt::format("internal error: {}", error.what()), error);
  }
}

int run_as_process(const std::vector<std::string>& words) {
  prepare_standard_streams();
  on_crash_in_hdf5(end_after_crash, end_after_loss);
  clean_up_on_signals();
  return run_program(words);
}

}  // namespace kvscope::cli
