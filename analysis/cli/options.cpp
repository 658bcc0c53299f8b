#include "analysis/cli/options.hpp"

#include <algorithm>
#include <boost/program_options.hpp>
#include <cassert>

#include "analysis/base/mapped.hpp"
#include "analysis/cli/output.hpp"
#include "core/base/suggest.hpp"

namespace kvscope::cli {

namespace po = boost::program_options;

namespace {

constexpr const char* kPositionalKey =
    "arguments";  // not a valid option: no option of ours has this name

// The name as the user typed it, without dashes and without "=value".
std::string bare_name(std::string typed) {
  typed.erase(0,
              typed.find_first_not_of('-') == std::string::npos ? 0 : typed.find_first_not_of('-'));
  return typed.substr(0, typed.find('='));
}

po::options_description describe(const std::vector<OptionSpec>& specs) {
  po::options_description description;
  for (const auto& spec : specs) {
    std::string name = spec.name;
    if (spec.short_name != '\0') name += fmt::format(",{}", spec.short_name);
    if (spec.placeholder.empty()) {
      description.add_options()(name.c_str(), po::value<std::vector<std::string>>()->zero_tokens());
    } else {
      description.add_options()(name.c_str(), po::value<std::vector<std::string>>());
    }
  }
  description.add_options()(kPositionalKey, po::value<std::vector<std::string>>());
  return description;
}

po::parsed_options parse_with_boost(std::span<const std::string> args,
                                    const po::options_description& description,
                                    const std::vector<OptionSpec>& specs) {
  po::positional_options_description positional;
  positional.add(kPositionalKey, -1);
  using Style = po::command_line_style::style_t;
  const int style = Style::unix_style & ~Style::allow_guessing;
  try {
    return po::command_line_parser({args.begin(), args.end()})
        .options(description)
        .positional(positional)
        .style(style)
        .run();
  } catch (const po::unknown_option& error) {
    const auto names = mapped<std::string>(specs, [&](const auto& spec) { return spec.name; });
    const std::string typed = error.get_option_name();
    throw UsageError("unknown option {}{}", typed, did_you_mean(bare_name(typed), names, "--"));
  } catch (const po::error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

std::string detail::dashed(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

OptionSet::OptionSet() {
  OptionSpec help;
  help.name = "help";
  help.help = "print this text";
  help.short_name = 'h';
  options_.push_back(std::move(help));
}

OptionSpec& OptionSet::add_spec(OptionSpec spec) {
  assert(std::ranges::none_of(options_, [&](const auto& o) { return o.name == spec.name; }));
  options_.push_back(std::move(spec));
  return options_.back();
}

void OptionSet::flag(std::string name, std::string help, bool& target) {
  OptionSpec spec;
  spec.name = std::move(name);
  spec.help = std::move(help);
  spec.set = [&target](std::string_view) { target = true; };
  add_spec(std::move(spec));
}

bool OptionSet::given(std::string_view name) const {
  return std::ranges::find(given_, name) != given_.end();
}

void OptionSet::renamed(std::string old_name, std::string name) {
  renamed_.emplace_back(std::move(old_name), std::move(name));
}

std::vector<std::string> OptionSet::words(std::string_view command,
                                          std::span<const std::string_view> but) const {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= command.size();) {  // "simulate needle" is two
    const std::size_t end = std::min(command.find(' ', begin), command.size());
    words.emplace_back(command.substr(begin, end - begin));
    begin = end + 1;
  }
  const auto add = [&](const OptionSpec& spec, bool is_option) {
    if (std::ranges::find(but, spec.name) != but.end()) return;
    for (const auto& [name, text] : values_) {
      if (name != spec.name) continue;
      if (is_option) words.push_back("--" + name);
      if (!is_option || !spec.placeholder.empty()) words.push_back(text);
    }
  };
  const std::size_t n_command = words.size();
  for (const OptionSpec& spec : positionals_) add(spec, /*is_option=*/false);
  const auto first = words.begin() + static_cast<std::ptrdiff_t>(n_command);
  // Options first and a "--" where an argument would be taken for an option.
  const bool needs_end = std::any_of(first, words.end(), [](const std::string& word) {
    return word.size() > 1 && word[0] == '-';
  });
  std::vector<std::string> arguments;
  if (needs_end) {
    arguments.assign(first, words.end());
    words.resize(n_command);
  }
  for (const OptionSpec& spec : options_) add(spec, /*is_option=*/true);
  if (needs_end) {
    words.emplace_back("--");
    words.insert(words.end(), arguments.begin(), arguments.end());
  }
  return words;
}

void insert_options(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(std::ranges::find(words, "--"), more.begin(), more.end());
}

std::string OptionSet::command_line(std::string_view command,
                                    std::span<const std::string_view> but) const {
  std::string line = "kvscope";
  for (const std::string& word : words(command, but)) line += " " + shell_word(word);
  return line;
}

void OptionSet::fail_unexpected(const std::string& text) const {
  const auto names = mapped<std::string>(positionals_, &OptionSpec::name);
  throw UsageError(
      "unexpected argument \"{}\": expected {}{}", text,
      names.empty() ? "options alone" : fmt::format("{} and options", fmt::join(names, ", ")),
      argument_advice_.empty() ? "" : "; " + argument_advice_);
}

std::string OptionSet::taken_for_another(
    const std::vector<std::pair<const OptionSpec*, std::string>>& values) {
  for (const auto& [spec, text] : values) {
    if (spec->required && !spec->choices.empty() &&
        std::ranges::find(spec->choices, text) == spec->choices.end())
      return fmt::format(": \"{}\" stands where {} is expected, one of {}", text, spec->name,
                         fmt::join(spec->choices, ", "));
  }
  return "";
}

void OptionSet::parse(std::span<const std::string> typed) {
  const auto description = describe(options_);
  std::vector<std::string> args(typed.begin(), typed.end());
  for (std::string& arg : args) {
    if (arg == "--") break;
    for (const auto& [old_name, name] : renamed_) {
      if (arg != "--" + old_name && !arg.starts_with("--" + old_name + "=")) continue;
      arg.replace(2, old_name.size(), name);
      remarks_.push_back(
          fmt::format("kvscope: --{} is called --{} now; the old name goes with the next version",
                      old_name, name));
    }
  }
  for (std::size_t i = 0; i < args.size() && args[i] != "--"; ++i) {
    for (const OptionSpec& spec : options_) {
      if (spec.bare_value.empty() || args[i] != "--" + spec.name) continue;
      const bool has_value =
          i + 1 < args.size() && std::ranges::find(spec.choices, args[i + 1]) != spec.choices.end();
      if (!has_value) args[i] += "=" + spec.bare_value;
    }
  }
  const auto parsed = parse_with_boost(args, description, options_);

  std::vector<std::string> loose;
  std::vector<std::pair<const OptionSpec*, std::string>> values;
  for (const auto& option : parsed.options) {
    if (option.string_key == kPositionalKey) {
      if (option.position_key < 0) throw UsageError("unknown option --{}", kPositionalKey);
      loose.insert(loose.end(), option.value.begin(), option.value.end());
      continue;
    }
    const auto spec =
        std::ranges::find_if(options_, [&](const auto& o) { return o.name == option.string_key; });
    assert(spec != options_.end());
    if (spec->name == "help") {
      wants_help_ = true;
      return;
    }
    if (!spec->placeholder.empty() && !spec->repeatable && given(spec->name))
      throw UsageError("--{} is given twice", spec->name);
    given_.push_back(spec->name);
    values.emplace_back(&*spec, option.value.empty() ? std::string() : option.value.front());
  }

  std::size_t slot = 0;
  for (const auto& text : loose) {
    if (slot >= positionals_.size()) fail_unexpected(text);
    const auto& spec = positionals_[slot];
    given_.push_back(spec.name);
    values.emplace_back(&spec, text);
    if (!spec.repeatable) ++slot;
  }
  for (const auto& spec : positionals_) {
    if (spec.required && !given(spec.name))
      throw UsageError("{} is missing{}", spec.name, taken_for_another(values));
  }
  try {
    for (const auto& [spec, text] : values) {
      spec->set(text);
      values_.emplace_back(spec->name, text);
    }
    for (const auto& check : checks_) check();
  } catch (const ConfigError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace kvscope::cli
