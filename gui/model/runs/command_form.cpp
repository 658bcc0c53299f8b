#include "gui/model/runs/command_form.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "gui/model/session/session.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr const char* kWhere = "kvscope help --json";

std::string word_at(const Json& json, const char* key) {
  if (!json.is_object() || !json.contains(key) || !json[key].is_string())
    throw FormatError("{}: expected a text \"{}\": is kvscope of another version?", kWhere, key);
  return json[key].get<std::string>();
}

CommandOption read_option(const Json& json, bool is_argument) {
  CommandOption option{.name = word_at(json, "name"),
                       .placeholder = word_at(json, "value"),
                       .help = word_at(json, "help"),
                       .preset = word_at(json, "default"),
                       .is_argument = is_argument,
                       .is_file = word_at(json, "kind") != "text",
                       .is_required = json.value("required", false)};
  for (const Json& choice : json.value("choices", Json::array())) {
    if (choice.is_string()) option.choices.push_back(choice.get<std::string>());
  }
  return option;
}

/// What the help of --out says a command writes.
std::string ending_of(const CommandOption& out) {
  if (out.is_folder()) return "";
  if (out.help.find(".html") != std::string::npos) return ".html";
  const bool is_json = out.help.find("JSON") != std::string::npos &&
                       out.help.find(".h5") == std::string::npos &&
                       out.help.find("HDF5") == std::string::npos;
  return is_json ? ".json" : ".h5";
}

}  // namespace

const CommandOption* CommandSpec::find(std::string_view option) const {
  const auto found = std::ranges::find(options, option, &CommandOption::name);
  return found == options.end() ? nullptr : &*found;
}

std::vector<CommandSpec> read_commands(const std::string& text) {
  const Json json = parse_ordered_json(text, kWhere);
  if (!json.is_array()) throw FormatError("{}: expected a list of commands", kWhere);
  std::vector<CommandSpec> commands;
  for (const Json& entry : json) {
    CommandSpec command{.name = word_at(entry, "name"),
                        .summary = word_at(entry, "summary"),
                        .description = word_at(entry, "description"),
                        .other_words = word_at(entry, "other_words")};
    for (const char* part : {"arguments", "options"}) {
      if (!entry.contains(part) || !entry[part].is_array()) continue;
      for (const Json& option : entry[part])
        command.options.push_back(read_option(option, std::string_view(part) == "arguments"));
    }
    if (command.find("progress") == nullptr) continue;
    // The window asks for these itself, or shows what they would print.
    std::erase_if(command.options, [](const CommandOption& option) {
      return option.name == "help" || option.name == "progress" || option.name == "json";
    });
    const bool has_out = command.find("out") != nullptr;  // OUT is the same: one way is enough
    std::erase_if(command.options, [&](const CommandOption& option) {
      return has_out && option.is_argument && option.name == "OUT";
    });
    commands.push_back(std::move(command));
  }
  if (commands.empty()) throw FormatError("{}: no command was listed", kWhere);
  return commands;
}

std::vector<std::string> command_words(const CommandSpec& command, const CommandValues& values) {
  std::vector<std::string> arguments;
  CommandOptions options;
  for (const CommandOption& option : command.options) {
    const auto found = values.find(option.name);
    if (found == values.end() || found->second.empty()) continue;
    const std::string& value = found->second;
    if (option.is_argument) {
      arguments.push_back(value);
    } else if (!option.is_flag()) {
      options.emplace_back(option.name, value);
    } else if (value == "true") {
      options.emplace_back(option.name, "");
    }
  }
  return command_words(command.name, arguments, options);
}

std::vector<std::string> command_words(std::string_view command,
                                       const std::vector<std::string>& arguments,
                                       const CommandOptions& options) {
  std::vector<std::string> words = split_words(command, ' ');
  words.insert(words.end(), arguments.begin(), arguments.end());
  for (const auto& [name, value] : options) {
    if (value.starts_with("-")) {  // must not be taken for an option itself
      words.push_back(fmt::format("--{}={}", name, value));
      continue;
    }
    words.push_back("--" + name);
    if (!value.empty()) words.push_back(value);
  }
  return words;
}

CommandValues suggested_values(const CommandSpec& command, const Session& session) {
  CommandValues values;
  const auto trace = session.document();
  const auto second = session.second();
  for (const CommandOption& option : command.options) {
    const bool is_draft = option.name == "DRAFT" || option.name == "draft";
    const bool is_trace =
        option.is_argument && option.is_file && !is_draft && option.name != "FILE";
    const bool wants_part = option.name == "PART";  // an unfinished file
    if (is_trace && trace && (!wants_part || trace->is_being_recorded()))
      values[option.name] = trace->path().string();
    // Closed loops take the draft model itself, a folder.
    if (is_draft && second && !option.is_folder()) values[option.name] = second->path().string();
    if (option.name == "selector" && option.placeholder == "NAME") {
      values[option.name] = session.selection().selector.text();
    } else if (option.name == "selector") {
      values[option.name] = fmt::format("{}", fmt::join(session.ticked(), ","));
    }
    if (option.name == "budget" && option.choices.empty())
      values[option.name] = fmt::format("{}", session.parameters().budget);
    if (option.name == "dense-layers")
      values[option.name] = fmt::format("{}", session.parameters().dense_layers);
    if (option.name == "chunk" && command.find("dense-layers") != nullptr)  // of a replay
      values[option.name] = fmt::format("{}", session.parameters().chunk);
    if (option.name == "html") values[option.name] = "true";
  }
  if (command.name == "explain" && trace) {  // of a trace, it explains one query
    const Selection& s = session.selection();
    values["layers"] = fmt::format("{}", s.layer);
    values["heads"] = fmt::format("{}", s.q_head);
    values["query"] = fmt::format("{}", s.query);
    if (s.key) values["key"] = fmt::format("{}", *s.key);
  }
  if (command.name == "record") {
    values = {{"model", "verifier"},
              {"prompt", ""},
              {"text", ""},
              {"max-tokens", "2048"},
              {"decode", "32"}};
  }
  if (const CommandOption* out = command.find("out")) {
    std::string name = trace || command.name != "record" ? command.name : "trace";
    std::ranges::replace(name, ' ', '-');
    std::error_code error;
    const fs::path folder = trace ? trace->path().parent_path() : fs::current_path(error);
    const std::string stem = trace ? trace->path().stem().string() + "-" + name : name;
    values["out"] = free_file(folder / (stem + ending_of(*out))).string();
  }
  return values;
}

fs::path free_file(const fs::path& wanted) {
  const auto is_taken = [](const fs::path& file) {
    std::error_code error;
    fs::path part = file;
    part += ".part";
    return fs::exists(file, error) || fs::exists(part, error);
  };
  fs::path file = wanted;
  for (int number = 2; is_taken(file); ++number) {
    file = wanted.parent_path() /
           fmt::format("{}-{}{}", wanted.stem().string(), number, wanted.extension().string());
  }
  return file;
}

}  // namespace kvscope::gui
