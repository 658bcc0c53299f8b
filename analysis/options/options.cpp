#include "analysis/options/options.hpp"

#include <algorithm>
#include <boost/program_options.hpp>
#include <cassert>
#include <sstream>

#include "analysis/options/instead.hpp"
#include "core/base/lists.hpp"
#include "core/base/shell_word.hpp"

namespace kvscope {

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

/// As they are parsed and, for a program without a page of its own, printed: --help last.
po::options_description describe(const std::vector<OptionSpec>& specs) {
  po::options_description description("Options");
  const auto add = [&](const OptionSpec& spec) {
    std::string name = spec.name;
    if (spec.short_name != '\0') name += fmt::format(",{}", spec.short_name);
    auto* const value = po::value<Words>();
    spec.placeholder.empty() ? value->zero_tokens() : value->value_name(spec.placeholder);
    description.add_options()(name.c_str(), value, spec.explanation().c_str());
  };
  std::for_each(specs.begin() + 1, specs.end(), add);
  add(specs.front());
  return description;
}

Words names_of(const std::vector<OptionSpec>& specs) {
  Words names;
  for (const OptionSpec& spec : specs) names.push_back(spec.name);
  return names;
}

po::parsed_options parse_with_boost(std::span<const std::string> args,
                                    const std::vector<OptionSpec>& specs) {
  po::options_description description;
  description.add(describe(specs)).add_options()(kPositionalKey, po::value<Words>());
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
    const std::string typed = error.get_option_name();
    throw UsageError("unknown option {}{}", typed,
                     option_meant(bare_name(typed), names_of(specs), "--"));
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

void Range::check(std::string_view option, double value, const std::string& shown) const {
  const bool is_low = is_above_min ? !(value > min) : !(value >= min);
  const bool is_high = is_below_max ? !(value < max) : !(value <= max);
  if (!is_low && !is_high) return;
  if (std::isinf(max))
    throw UsageError("--{}: expected {} {}, found {}", option,
                     is_above_min ? "more than" : "at least", min, shown);
  throw UsageError("--{}: expected a value in {}{}, {}{}, found {}", option,
                   is_above_min ? '(' : '[', min, max, is_below_max ? ')' : ']', shown);
}

std::string OptionSpec::explanation() const {
  std::string text = help;
  const auto is_named = [&](const std::string& choice) {
    return text.find(choice) != std::string::npos;
  };
  if (!std::ranges::all_of(choices, is_named))
    text += fmt::format(": {}", fmt::join(choices, ", "));
  if (!default_text.empty()) text += fmt::format(" [{}]", default_text);
  return text;
}

OptionSet::OptionSet(std::string program) : program_(std::move(program)) {
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

Words OptionSet::words(std::string_view command, std::span<const std::string_view> but) const {
  Words words = split_words(command, ' ');  // "simulate retrieval" is two
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
  Words arguments;
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

void insert_options(Words& words, const Words& more) {
  words.insert(std::ranges::find(words, "--"), more.begin(), more.end());
}

std::string OptionSet::command_line(std::string_view command,
                                    std::span<const std::string_view> but) const {
  return command_line_of(words(command, but), program_);
}

std::string OptionSet::text() const {
  std::ostringstream out;
  out << describe(options_);
  return out.str();
}

void OptionSet::exclude_each(Words names, Words others, std::string why) {
  rules_.push_back({std::move(names), std::move(others), /*excludes=*/true, std::move(why)});
}

void OptionSet::need(Words names, Words needed, std::string why) {
  rules_.push_back({std::move(names), std::move(needed), /*excludes=*/false, std::move(why)});
}

void OptionSet::give(const OptionSpec& spec, std::string_view text) {
  spec.set(text);
  given_.push_back(spec.name);
}

std::string OptionSet::shown(const std::string& name) const {
  const bool is_argument =
      std::ranges::find(positionals_, name, &OptionSpec::name) != positionals_.end();
  return is_argument ? name : "--" + name;
}

void OptionSet::check_rules() const {
  for (const OptionSpec& spec : options_) {
    if (!spec.missing.empty() && !given(spec.name))
      throw UsageError("--{} is missing: {}", spec.name, spec.missing);
  }
  [[maybe_unused]] const auto is_declared = [this](const std::string& name) {
    const auto is_it = [&](const OptionSpec& spec) { return spec.name == name; };
    return std::ranges::any_of(options_, is_it) || std::ranges::any_of(positionals_, is_it);
  };
  for (const Rule& rule : rules_) {
    assert(std::ranges::all_of(rule.names, is_declared));
    assert(std::ranges::all_of(rule.others, is_declared));
    for (const std::string& name : rule.names) {
      if (!given(name)) continue;
      const auto other = std::ranges::find_if(
          rule.others, [&](const std::string& one) { return one != name && given(one); });
      if (rule.excludes == (other == rule.others.end())) continue;
      if (rule.excludes)
        throw UsageError("{} and {} exclude each other{}", shown(name), shown(*other), rule.why);
      Words needed;
      for (const std::string& one : rule.others) needed.push_back(shown(one));
      throw UsageError("{} needs {}{}", shown(name), fmt::join(needed, " or "), rule.why);
    }
  }
}

void OptionSet::fail_unexpected(const std::string& text) const {
  const Words names = names_of(positionals_);
  throw UsageError(
      "unexpected argument \"{}\": expected {}{}", text,
      names.empty() ? "options alone" : fmt::format("{} and options", fmt::join(names, ", ")),
      argument_advice_.empty() ? "" : "; " + argument_advice_);
}

std::string OptionSet::taken_for_another() const {
  for (const OptionSpec& spec : positionals_) {
    for (const auto& [name, text] : values_) {
      if (name == spec.name && spec.required && !spec.choices.empty() &&
          std::ranges::find(spec.choices, text) == spec.choices.end())
        return fmt::format(": \"{}\" stands where {} is expected, one of {}", text, spec.name,
                           fmt::join(spec.choices, ", "));
    }
  }
  return "";
}

std::string OptionSet::wrong_file() const {
  for (const auto& [name, text] : values_) {
    const auto spec = std::ranges::find(positionals_, name, &OptionSpec::name);
    if (spec == positionals_.end()) continue;
    const bool is_word = std::ranges::find(spec->choices, text) != spec->choices.end();
    if (is_word || (spec->takes.empty() && spec->choices.empty())) continue;
    const FileKind kind = kind_of_file(text);
    const bool is_there = kind != FileKind::none && kind != FileKind::empty;
    if (!is_there || std::ranges::find(spec->takes, kind) != spec->takes.end()) continue;
    return fmt::format("{} is {}, where {} is expected{}; kvscope {} says what takes it", text,
                       words_of(kind), spec->name,
                       spec->takes.empty() ? "" : fmt::format(", {}", words_of(spec->takes[0])),
                       shell_word(text));
  }
  return "";
}

void OptionSet::parse(std::span<const std::string> typed) {
  Words args(typed.begin(), typed.end());
  for (std::size_t i = 0; i < args.size() && args[i] != "--"; ++i) {
    for (const OptionSpec& spec : options_) {
      if (spec.bare_value.empty() || args[i] != "--" + spec.name) continue;
      const bool has_value =
          i + 1 < args.size() && std::ranges::find(spec.choices, args[i + 1]) != spec.choices.end();
      if (!has_value) args[i] += "=" + spec.bare_value;
    }
  }
  const auto parsed = parse_with_boost(args, options_);

  Words loose;
  std::vector<const OptionSpec*> specs;  // of values_
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
    specs.push_back(&*spec);
    values_.emplace_back(spec->name, option.value.empty() ? std::string() : option.value.front());
  }

  std::size_t slot = 0;
  for (const auto& text : loose) {
    if (slot >= positionals_.size()) fail_unexpected(text);
    const auto& spec = positionals_[slot];
    given_.push_back(spec.name);
    specs.push_back(&spec);
    values_.emplace_back(spec.name, text);
    if (!spec.repeatable) ++slot;
  }
  for (const auto& spec : positionals_) {
    if (spec.required && !given(spec.name))
      throw UsageError("{} is missing{}", spec.name, taken_for_another());
  }
  try {
    for (std::size_t i = 0; i < specs.size(); ++i) specs[i]->set(values_[i].second);
    for (const auto& more : more_) more(*this);
    check_rules();
    for (const auto& check : checks_) check();
  } catch (const ConfigError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace kvscope
