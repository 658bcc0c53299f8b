// A command's options: declared once with name, help and target; parsing, help, completion and
// manual follow.
//
//   OptionSet options;
//   options.flag("json", "print the report as JSON", json);
//   options.add("chunk", "N", "tokens per prefill call", chunk);  // default: the target's value
//   options.fields(quoka_options);  // a struct whose members are options
//   options.parse(args);
#pragma once

#include <cmath>
#include <filesystem>

#include "analysis/cli/exit_code.hpp"
#include "core/base/fields.hpp"
#include "core/base/vocabulary.hpp"

namespace kvscope::cli {

/// What a value is, so that shells can complete it.
enum class ValueKind { text, file, folder };

/// One option or positional argument as the user sees it.
struct OptionSpec {
  std::string name;         // without dashes
  std::string placeholder;  // "N"; empty for a flag
  std::string help;
  std::string default_text;  // empty: none worth showing
  std::string bare_value;    // what --name means where none of `choices` follows; empty: an error
  std::vector<std::string> choices;
  ValueKind kind = ValueKind::text;
  char short_name = '\0';
  bool repeatable = false;
  bool required = false;  // positional arguments only
  std::function<void(std::string_view)> set;
};

class OptionSet {
 public:
  OptionSet();  // --help is there from the start

  /// --name without a value.
  void flag(std::string name, std::string help, bool& target);

  /// --name VALUE. T: number, enum with EnumNames, text, path, std::optional of these, or
  /// std::vector of texts or paths (which makes the option repeatable). Setting a number checks
  /// its limits.
  template <class T>
  OptionSpec& add(std::string name, std::string placeholder, std::string help, T& target,
                  Limits limits = {});

  /// Every option of a struct (core/base/fields.hpp); parse() checks their ranges.
  template <class Options>
  void fields(Options& target);

  /// An argument without dashes. Several may be declared; only the last may be a vector.
  template <class T>
  OptionSpec& positional(std::string name, std::string help, T& target, bool required);

  /// The option's name of an earlier version: accepted for one more, with a remark.
  void renamed(std::string old_name, std::string name);

  /// What who gave an argument too many may have meant, as the end of a sentence.
  void advise_argument(std::string advice) { argument_advice_ = std::move(advice); }

  /// Sets the targets from the arguments. Throws UsageError, naming the nearest known option for an
  /// unknown one.
  void parse(std::span<const std::string> args);

  /// True once parse() met --help; targets are unchanged then.
  bool wants_help() const { return wants_help_; }
  /// True if the option (or positional argument) was given.
  bool given(std::string_view name) const;

  /// Sentences about what was given by an earlier name, for standard error.
  const std::vector<std::string>& remarks() const { return remarks_; }
  /// What was given as words of a command line: the command's own, arguments, then options, in
  /// the order of declaration, without the options `but` names; arguments that begin with a dash
  /// stand last, behind "--". However it was typed, the same options give the same words.
  std::vector<std::string> words(std::string_view command,
                                 std::span<const std::string_view> but) const;
  /// "kvscope NAME --a 1 --b 2": what was given, in the order of declaration, without the
  /// options `but` names and as a shell takes it. However it was typed, the same options give
  /// the same text.
  std::string command_line(std::string_view command, std::span<const std::string_view> but) const;

  const std::vector<OptionSpec>& options() const { return options_; }
  const std::vector<OptionSpec>& positionals() const { return positionals_; }

 private:
  template <class T>
  static OptionSpec make_spec(std::string name, std::string placeholder, std::string help,
                              T& target);
  OptionSpec& add_spec(OptionSpec spec);
  [[noreturn]] void fail_unexpected(const std::string& text) const;
  /// ": WORD stands where KIND is expected" if one of several words was left out; else nothing.
  static std::string taken_for_another(
      const std::vector<std::pair<const OptionSpec*, std::string>>& values);

  std::vector<OptionSpec> options_;
  std::vector<OptionSpec> positionals_;
  std::vector<std::function<void()>> checks_;
  std::vector<std::string> given_;
  std::vector<std::pair<std::string, std::string>> values_;   // name, text; in the order given
  std::vector<std::pair<std::string, std::string>> renamed_;  // old name, name
  std::vector<std::string> remarks_;
  std::string argument_advice_;
  bool wants_help_ = false;
};

// ---- details ----

namespace detail {
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class T>
void set_value(const std::string& name, std::string_view text, T& target) {
  if constexpr (IsOptional<T>::value) {
    typename T::value_type value{};
    set_value(name, text, value);
    target = std::move(value);
  } else if constexpr (IsVector<T>::value) {
    typename T::value_type value{};
    set_value(name, text, value);
    target.push_back(std::move(value));
  } else if constexpr (std::same_as<T, std::filesystem::path>) {
    if (text.empty()) throw ConfigError(name + ": expected a file name, found nothing");
    target = std::filesystem::path(text);
  } else {
    parse_field(Field{name, ""}, text, target);
  }
}

template <class T>
std::string default_of(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(enum_name(value));
  } else if constexpr (std::same_as<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_arithmetic_v<T>) {
    return fmt::format("{}", value);
  } else if constexpr (std::same_as<T, std::string>) {
    return value;
  } else if constexpr (std::same_as<T, std::filesystem::path>) {
    return value.string();
  } else {
    return "";
  }
}

template <class T>
std::vector<std::string> choices_of() {
  if constexpr (IsOptional<T>::value || IsVector<T>::value) {
    return choices_of<typename T::value_type>();
  } else if constexpr (std::is_enum_v<T>) {
    return {EnumNames<T>::value.begin(), EnumNames<T>::value.end()};
  } else if constexpr (std::same_as<T, bool>) {
    return {"true", "false"};
  } else {
    return {};
  }
}

std::string dashed(std::string_view name);
}  // namespace detail

template <class T>
OptionSpec OptionSet::make_spec(std::string name, std::string placeholder, std::string help,
                                T& target) {
  OptionSpec spec;
  spec.default_text = detail::default_of(target);
  spec.choices = detail::choices_of<T>();
  spec.repeatable = detail::IsVector<T>::value;
  if constexpr (std::same_as<T, std::filesystem::path> ||
                std::same_as<T, std::optional<std::filesystem::path>> ||
                std::same_as<T, std::vector<std::filesystem::path>>) {
    spec.kind = ValueKind::file;
  }
  spec.set = [label = "--" + name, &target](std::string_view text) {
    detail::set_value(label, text, target);
  };
  spec.name = std::move(name);
  spec.placeholder = std::move(placeholder);
  spec.help = std::move(help);
  return spec;
}

/// Throws UsageError that names --`option` unless the value is within the limits.
template <class T>
void check_range(std::string_view option, T value, Limits limits) {
  const auto number = static_cast<double>(value);
  if (number >= limits.min && number <= limits.max) return;
  if (std::isinf(limits.max))
    throw UsageError("--{}: expected at least {}, found {}", option, limits.min, value);
  throw UsageError("--{}: expected a value in [{}, {}], found {}", option, limits.min, limits.max,
                   value);
}

template <class T>
OptionSpec& OptionSet::add(std::string name, std::string placeholder, std::string help, T& target,
                           Limits limits) {
  OptionSpec& spec =
      add_spec(make_spec(std::move(name), std::move(placeholder), std::move(help), target));
  if (!std::isinf(limits.min)) {
    spec.set = [name = spec.name, set = std::move(spec.set), &target,
                limits](std::string_view text) {
      set(text);
      if constexpr (std::is_arithmetic_v<T>) check_range(name, target, limits);
      if constexpr (requires { *target + 1; }) check_range(name, *target, limits);
    };
  }
  return spec;
}

template <class T>
OptionSpec& OptionSet::positional(std::string name, std::string help, T& target, bool required) {
  OptionSpec spec = make_spec(name, name, std::move(help), target);
  spec.set = [name, &target](std::string_view text) { detail::set_value(name, text, target); };
  spec.required = required;
  positionals_.push_back(std::move(spec));
  return positionals_.back();
}

template <class Options>
void OptionSet::fields(Options& target) {
  visit_fields(target, [this](const Field& field, auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    const std::string name = detail::dashed(field.name);
    std::string help(field.help);
    if constexpr (std::is_arithmetic_v<T> && !std::same_as<T, bool>) {
      const auto bound = [](double x) { return fmt::format("{}", x); };
      if (!std::isinf(field.min) && !std::isinf(field.max))
        help += fmt::format(" ({} to {})", bound(field.min), bound(field.max));
    }
    if constexpr (std::same_as<T, EnumRef>) {
      OptionSpec spec;
      spec.name = name;
      spec.placeholder = "WORD";
      spec.help = help;
      spec.default_text = value.name();
      spec.choices = {value.names.begin(), value.names.end()};
      spec.set = [label = "--" + name, word = value](std::string_view text) mutable {
        parse_field(Field{label, ""}, text, word);
      };
      add_spec(std::move(spec));
    } else {
      add(name,
          std::is_floating_point_v<T>                         ? "X"
          : std::is_arithmetic_v<T> && !std::same_as<T, bool> ? "N"
                                                              : "WORD",
          help, value);
    }
  });
  checks_.push_back([&target] { check_fields(target); });
}

/// Puts options into the words of a command line, before a "--" if there is one.
void insert_options(std::vector<std::string>& words, const std::vector<std::string>& more);

}  // namespace kvscope::cli
