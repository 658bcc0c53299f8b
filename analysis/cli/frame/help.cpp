#include "analysis/cli/frame/help.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "analysis/cli/frame/help_search.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/options/instead.hpp"
#include "core/base/enum_names.hpp"
#include "core/base/json.hpp"
#include "core/base/lists.hpp"
#include "core/base/suggest.hpp"
#include "core/base/version.hpp"

namespace kvscope::cli {

namespace {

constexpr const char* kExitCodes =
    "exit codes: 0 ok, 1 internal error, 2 usage, 3 unreadable input or failed verify,\n"
    "            4 partly failed, 5 a check failed (bound violated), 130/143 interrupted";

// "-o, --out FILE"
std::string left_column(const OptionSpec& spec) {
  std::string text = spec.short_name != '\0' ? fmt::format("-{}, --{}", spec.short_name, spec.name)
                                             : fmt::format("--{}", spec.name);
  if (!spec.bare_value.empty()) return fmt::format("{} [{}]", text, spec.placeholder);
  return spec.placeholder.empty() ? text : text + " " + spec.placeholder;
}

constexpr std::size_t kNameWidth = 23;

/// "  left   right" with the left column `width` wide, the right one wrapped.
std::string two_columns(const std::string& left, const std::string& right, std::size_t width) {
  const std::string wrapped = wrap(right, static_cast<int>(width) + 4);
  if (left.size() > width) return fmt::format("  {}\n{}", left, wrapped);
  const std::string head = fmt::format("  {:<{}}  ", left, width);
  return head + wrapped.substr(head.size());
}

std::string overview_line(const Command& command) {
  return two_columns(command.name(), command.card().summary, kNameWidth);
}

/// What the commands from here on answer.
struct Question {
  std::string_view first_command;
  std::string_view text;
};
constexpr Question kQuestions[] = {
    {"record", "Record a model's attention"},
    {"analyze quoka", "Look into a recording"},
    {"sweep", "Compare methods: quality, time, memory"},
    {"simulate perplexity", "Run a method inside the model"},
    {"papers", "Judge papers, answer a question of your own"},
    {"table", "Write it up"},
    {"version", "And"},
};

std::string troff(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  const bool looks_like_request = !out.empty() && (out[0] == '.' || out[0] == '\'');
  return looks_like_request ? fmt::format("\\&{}", out) : out;
}

}  // namespace

std::string wrap(const std::string& text, int indent, int width) {
  const std::string blanks(static_cast<std::size_t>(indent), ' ');
  std::string out;
  std::istringstream lines(text);
  for (std::string paragraph; std::getline(lines, paragraph);) {
    if (paragraph.empty()) {
      out += "\n";
      continue;
    }
    std::istringstream words(paragraph);
    std::string line = blanks;
    for (std::string word; words >> word;) {
      if (line.size() > blanks.size() &&
          line.size() + 1 + word.size() > static_cast<std::size_t>(width)) {
        out += line + "\n";
        line = blanks;
      }
      if (line.size() > blanks.size()) line += ' ';
      line += word;
    }
    out += line + "\n";
  }
  return out.empty() ? "\n" : out;
}

namespace {

std::string usage_line(const Command& command, const OptionSet& options) {
  std::string line = fmt::format("usage: kvscope {} [options]", command.name());
  for (const auto& spec : options.positionals()) {
    const std::string word = spec.repeatable ? spec.name + "..." : spec.name;
    line += spec.required ? fmt::format(" {}", word) : fmt::format(" [{}]", word);
  }
  return line;
}

/// "analyze quest" to its group and kind; of other commands the kind is empty.
std::pair<std::string, std::string> split_name(const std::string& name) {
  for (const auto& [group, meaning] : command_groups()) {
    if (name.starts_with(group + " ")) return {group, name.substr(group.size() + 1)};
  }
  return {name, ""};
}

}  // namespace

std::string overview_text() {
  std::string out =
      "kvscope records the attention of a language model's layers and analyses how well\n"
      "sparse attention (QuoKA, Quest, SpecAttn) would do on it.\n\n"
      "usage: kvscope COMMAND [options]\n";
  std::map<std::string, std::vector<std::string>> kinds;  // by group
  const auto commands = all_commands();
  for (const auto& command : commands) {
    const auto [group, kind] = split_name(command->name());
    if (!kind.empty()) kinds[group].push_back(kind);
  }
  for (const auto& command : commands) {
    const std::string name = command->name();
    for (const Question& question : kQuestions) {
      if (question.first_command == name) out += fmt::format("\n{}\n", question.text);
    }
    const auto [group, kind] = split_name(name);
    if (kind.empty()) {
      out += overview_line(*command);
    } else if (kinds.at(group).front() == kind) {
      out += two_columns(group + " KIND", fmt::format("{}", fmt::join(kinds.at(group), ", ")),
                         kNameWidth);
    }
  }
  out +=
      "\nkvscope COMMAND --help explains a command with examples; kvscope help WORDS finds what\n"
      "answers a question (\"help needle\"); kvscope FILE says what a file is and\n"
      "what can be done with it. A first session:\n"
      "  kvscope record trace.h5 --max-tokens 1024\n"
      "  kvscope analyze quest trace.h5 --out quest.h5\n\n";
  return out + kExitCodes + "\n";
}

std::string group_text(const std::string& group) {
  std::string out = fmt::format("usage: kvscope {} KIND [options]\n\nkinds:\n", group);
  for (const auto& command : all_commands()) {
    if (command->name().starts_with(group + " ")) out += overview_line(*command);
  }
  return out + fmt::format("\nkvscope {} KIND --help tells the options of one.\n", group);
}

namespace {

/// Name and explanation of an option, as every command that has it prints them.
using OptionText = std::pair<std::string, std::string>;
OptionText text_of(const OptionSpec& spec) {
  return {left_column(spec), spec.explanation()};
}

std::string command_text(const Command& command, const OptionSet& options,
                         std::span<const OptionText> told_elsewhere) {
  std::string summary = command.card().summary;
  std::string out =
      fmt::format("kvscope {}: {}\n\n{}\n", command.name(), summary, usage_line(command, options));
  if (!command.card().description.empty())
    out += fmt::format("\n{}", wrap(command.card().description, 0));
  std::size_t width = 0;
  for (const auto& spec : options.positionals()) width = std::max(width, spec.name.size());
  for (const auto& spec : options.options()) width = std::max(width, left_column(spec).size());
  width = std::min<std::size_t>(width, 26);
  if (!options.positionals().empty()) out += "\narguments:\n";
  for (const auto& spec : options.positionals())
    out += two_columns(spec.name, spec.explanation(), width);
  out += "\noptions:\n";
  std::vector<std::string> shared;
  for (const auto& spec : options.options()) {
    if (spec.name == "help") continue;
    const OptionText text = text_of(spec);
    if (std::ranges::find(told_elsewhere, text) != told_elsewhere.end()) {
      shared.push_back("--" + spec.name);
    } else {
      out += two_columns(text.first, text.second, width);
    }
  }
  out += two_columns("-h, --help", "print this text", width);
  if (!shared.empty())
    out += wrap(
        fmt::format("and, of those that several commands share: {}", fmt::join(shared, ", ")), 2);
  const auto examples = command.card().examples;
  if (!examples.empty()) out += "\nexamples:\n";
  for (const auto& example : examples)
    out += fmt::format("  {}\n      {}\n", example.command, example.meaning);
  return out;
}

/// Options that several commands explain in the same words, by name: of several explanations of a
/// name the one that most of them have.
std::vector<OptionText> shared_options(std::span<const OptionSet> declared) {
  constexpr int kSeveral = 3;
  std::map<OptionText, int> counts;
  for (const OptionSet& options : declared) {
    for (const auto& spec : options.options()) {
      if (spec.name != "help") ++counts[text_of(spec)];
    }
  }
  std::map<std::string, std::pair<int, OptionText>> most;  // by what stands on the left
  for (const auto& [text, n] : counts) {
    auto& known = most[text.first];
    if (n >= kSeveral && n > known.first) known = {n, text};
  }
  std::vector<OptionText> shared;
  for (const auto& [left, best] : most) {
    if (best.first > 0) shared.push_back(best.second);
  }
  return shared;
}

/// The help of every command; options that several of them share stand once, at the end.
std::string all_commands_text() {
  const auto commands = all_commands();
  std::vector<OptionSet> declared;
  for (const auto& command : commands) command->declare(declared.emplace_back());
  const std::vector<OptionText> shared = shared_options(declared);
  std::string out;
  for (std::size_t i = 0; i < declared.size(); ++i)
    out += command_text(*commands[i], declared[i], shared) + '\n';
  out += "Options that several commands share\n\n";
  for (const auto& [left, right] : shared) out += two_columns(left, right, 26);
  return out;
}

}  // namespace

std::string command_text(const Command& command, const OptionSet& options) {
  return command_text(command, options, {});
}

namespace {

std::string manual_page() {
  std::string out = fmt::format(
      ".TH KVSCOPE 1 \"\" \"kvscope {}\"\n.SH NAME\nkvscope \\- record and analyse attention of "
      "language models\n"
      ".SH SYNOPSIS\n.B kvscope\n.I command\n[options]\n.SH DESCRIPTION\n"
      "Records queries, keys and values of every attention layer to HDF5 and analyses what sparse "
      "attention methods\n"
      "would select. Data go to standard output, everything else to standard error.\n.SH "
      "COMMANDS\n",
      troff(std::string(version())));
  for (const auto& command : all_commands()) {
    OptionSet options;
    command->declare(options);
    out +=
        fmt::format(".SS {}\n{}.\n.PP\n.B {}\n", troff("kvscope " + command->name()),
                    troff(command->card().summary), troff(usage_line(*command, options).substr(7)));
    if (!command->card().description.empty())
      out += fmt::format(".PP\n{}\n", troff(command->card().description));
    for (const auto& spec : options.options())
      out += fmt::format(".TP\n.B {}\n{}\n", troff(left_column(spec)), troff(spec.explanation()));
    for (const auto& example : command->card().examples) {
      out += fmt::format(".PP\n{}:\n.PP\n.RS\n{}\n.RE\n", troff(example.meaning),
                         troff(example.command));
    }
  }
  out +=
      ".SH EXIT STATUS\n0 ok; 1 internal error; 2 usage; 3 unreadable input or failed verify; 4 "
      "finished with failed\n"
      "items; 5 a check failed (a bound was violated); 130 and 143 interrupted by SIGINT and "
      "SIGTERM.\n"
      ".SH ENVIRONMENT\n.TP\n.B KVSCOPE_DATA\nfolder with the embedded models and texts, instead "
      "of the installed one\n"
      ".TP\n.B SOURCE_DATE_EPOCH\ntime written as the creation time of files\n";
  return out;
}

Json spec_json(const OptionSpec& spec) {
  return {{"name", spec.name},
          {"value", spec.placeholder},
          {"help", spec.help},
          {"default", spec.default_text},
          {"choices", spec.choices},
          {"kind", enum_name(spec.kind)},
          {"repeatable", spec.repeatable},
          {"required", spec.required}};
}

Json command_json(const Command& command, const OptionSet& options) {
  Json json = {{"name", command.name()},
               {"summary", command.card().summary},
               {"description", command.card().description},
               {"other_words", other_words(command.name())},
               {"arguments", Json::array()},
               {"options", Json::array()}};
  for (const auto& spec : options.positionals()) json["arguments"].push_back(spec_json(spec));
  for (const auto& spec : options.options()) json["options"].push_back(spec_json(spec));
  return json;
}

class HelpCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"help",
            "this overview, the help of one command, or what answers a question",
            "",
            {{"kvscope help analyze quest", "the same as kvscope analyze quest --help"},
             {"kvscope help attention sinks",
              "commands, options, figures, methods and columns that these words find"}}};
  }
  void declare(OptionSet& options) override {
    options.flag("all", "print the help of every command, shared options once", all_);
    options.flag("man", "print the manual page (troff) instead", man_);
    options.flag("json", "print arguments and options of every command, or of one, as JSON", json_);
    options.positional("WORDS", "a command whose help to print, or a question", words_,
                       /*required=*/false);
  }
  int run(const OptionSet&, const std::string&) override {
    if (man_) {
      print(manual_page());
      return kOk;
    }
    if (all_) {
      print(all_commands_text());
      return kOk;
    }
    std::vector<std::string> words;  // "analyze  quest" may come as one
    for (const std::string& typed : words_)
      for (const std::string& word : split_words(typed, ' '))
        if (!word.empty()) words.push_back(word);
    const std::string wanted = fmt::format("{}", fmt::join(words, " "));
    if (json_) {
      Json commands = Json::array();
      for (const auto& command : all_commands()) {
        const std::string name = command->name();
        if (!wanted.empty() && name != wanted && !name.starts_with(wanted + " ")) continue;
        OptionSet options;
        command->declare(options);
        commands.push_back(command_json(*command, options));
      }
      if (commands.empty())
        throw UsageError("unknown command \"{}\": --json is of commands", wanted);
      print_json(commands);
      return kOk;
    }
    if (wanted.empty()) {
      print(overview_text());
      return kOk;
    }
    std::vector<std::string> names;
    for (const auto& [group, meaning] : command_groups()) {
      names.push_back(group);
      if (group == wanted) {
        print(group_text(group));
        return kOk;
      }
    }
    for (const auto& command : all_commands()) {
      const std::string name = command->name();
      names.insert(names.end(), {name, name.substr(name.rfind(' ') + 1)});
      if (name != wanted) continue;
      OptionSet options;
      command->declare(options);
      print(command_text(*command, options));
      return kOk;
    }
    std::string found = help_about(wanted);
    if (const auto instead = instead_of(wanted); !instead.empty())
      found =
          fmt::format("Instead of {}: {}\n{}{}", wanted, instead, found.empty() ? "" : "\n", found);
    if (found.empty())
      throw UsageError("no command, and nothing is about \"{}\"{}", wanted,
                       did_you_mean(wanted, names));
    print(found);
    return kOk;
  }

 private:
  bool all_ = false;
  bool man_ = false;
  bool json_ = false;
  std::vector<std::string> words_;
};

}  // namespace

KVSCOPE_COMMAND(930, HelpCommand)

}  // namespace kvscope::cli
