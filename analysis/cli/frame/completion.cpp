// kvscope completion: scripts for shells, which ask this command what may stand next.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/output.hpp"
#include "core/base/enum_names.hpp"

namespace kvscope::cli {

enum class Shell { bash, zsh, fish };

namespace {

/// A word that may stand next, and what it means.
using Candidates = std::vector<std::pair<std::string, std::string>>;

Candidates first_words() {
  Candidates found;
  for (const auto& [group, meaning] : command_groups()) found.emplace_back(group, meaning);
  for (const auto& command : all_commands()) {
    if (command->name().find(' ') == std::string::npos)
      found.emplace_back(command->name(), command->card().summary);
  }
  found.insert(found.end(), {{"--help", "all commands"}, {"--version", "which one this is"}});
  return found;
}

Candidates kinds_of(const std::string& group) {
  Candidates found;
  for (const auto& command : all_commands()) {
    if (command->name().starts_with(group + " "))
      found.emplace_back(command->name().substr(group.size() + 1), command->card().summary);
  }
  return found;
}

/// What the option before takes, else the command's options and the words that it takes.
Candidates words_of(Command& command, const std::string& before) {
  OptionSet options;
  command.declare(options);
  Candidates found;
  for (const auto& spec : options.options()) {
    if (before != "--" + spec.name || spec.placeholder.empty()) continue;
    for (const std::string& choice : spec.choices) found.emplace_back(choice, "");
    if (spec.kind == ValueKind::model) found = {{"verifier", "a model"}, {"draft", "a model"}};
    return found;
  }
  for (const auto& spec : options.options()) found.emplace_back("--" + spec.name, spec.help);
  for (const auto& spec : options.positionals())
    for (const std::string& choice : spec.choices) found.emplace_back(choice, spec.help);
  return found;
}

/// What may stand for the last one of a line's words; nothing where a file may.
Candidates candidates(const std::string& line) {
  std::vector<std::string> words = {""};
  for (const char c : line) {
    if (c != ' ' && c != '\n')
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.size() < 2) return {};
  const std::string last = words.back();
  words.pop_back();
  Candidates all = first_words();
  if (words.size() > 1) {
    std::string name = words[1];
    all = kinds_of(name);
    if (!all.empty() && words.size() > 2) name += " " + words[2];
    for (const auto& command : all_commands())
      if (command->name() == name) all = words_of(*command, words.back());
  }
  std::erase_if(all, [&](const auto& one) {
    return !one.first.starts_with(last) || (last.empty() && one.first.starts_with("-"));
  });
  return all;
}

constexpr const char* kBash = R"(# bash completion of kvscope, by: kvscope completion bash
_kvscope() {
  local IFS=$'\n'
  COMPREPLY=($(kvscope completion bash "${COMP_WORDS[*]:0:COMP_CWORD+1}" 2>/dev/null))
}
complete -o default -F _kvscope kvscope
)";
constexpr const char* kZsh = R"(#compdef kvscope
# zsh completion of kvscope, by: kvscope completion zsh
_kvscope() {
  local -a found=("${(@f)$(kvscope completion zsh "${(pj:\n:)words[1,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found" ]]; then _describe kvscope found; else _files; fi
}
_kvscope "$@"
)";
constexpr const char* kFish = R"(# fish completion of kvscope, by: kvscope completion fish
complete -c kvscope -a '(kvscope completion fish (commandline -cp) 2>/dev/null)'
)";

class CompletionCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"completion",
            "print a completion script for bash, zsh or fish",
            "",
            {{"source <(kvscope completion bash)", "for this shell"},
             {"kvscope completion fish > ~/.config/fish/completions/kvscope.fish", "for good"}}};
  }
  void declare(OptionSet& options) override {
    options
        .positional("SHELL", "whose language to write [the one in $SHELL]", shell_,
                    /*required=*/false)
        .default_text.clear();
    options.positional("LINE", "what the scripts ask: the words that may end this command line",
                       line_, /*required=*/false);
  }
  int run(const OptionSet& given, const std::string&) override {
    const Shell shell = given.given("SHELL") ? shell_ : shell_of_user();
    if (!given.given("LINE")) {
      print(std::array{kBash, kZsh, kFish}[static_cast<std::size_t>(shell)]);
      return kOk;
    }
    for (auto& [word, meaning] : candidates(line_)) {
      const char* const between = shell == Shell::zsh ? ":" : "\t";
      print(shell == Shell::bash || meaning.empty() ? word + "\n"
                                                    : word + between + meaning + "\n");
    }
    return kOk;
  }

 private:
  static Shell shell_of_user() {
    const char* const program = std::getenv("SHELL");
    const std::string name = program ? std::filesystem::path(program).filename().string() : "";
    if (const auto shell = enum_from_name<Shell>(name)) return *shell;
    throw UsageError("SHELL is missing: expected one of {}, and $SHELL says \"{}\"",
                     fmt::join(EnumNames<Shell>::value, ", "), name);
  }

  Shell shell_ = Shell::bash;
  std::string line_;
};

}  // namespace

KVSCOPE_COMMAND(920, CompletionCommand)

}  // namespace kvscope::cli
