// A program's or command's options: declared once with name, help, target, range and what they
// exclude or need; parsing, help, completion and manual follow.
//
//   OptionSet options;
//   options.flag("json", "print the report as JSON", json);
//   options.add("chunk", "N", "tokens per prefill call", chunk);  // default: the target's value
//   options.fields(quoka_options);  // a struct whose members are options
//   options.exclude({"json", "csv"});
//   options.parse(args);
#pragma once

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/options/exit_code.hpp"
#include "core/base/fields.hpp"
#include "core/base/file_kind.hpp"

namespace kvscope {

/// Limits whose ends may be left out.
struct Range : Limits {
  constexpr Range(Limits limits = {}, bool leaves_min = false, bool leaves_max = false)
      : Limits(limits), is_above_min(leaves_min), is_below_max(leaves_max) {}
  /// Throws UsageError that names --`option` unless the value lies within.
  template <class T>
  void check(std::string_view option, T value) const {
    check(option, static_cast<double>(value), fmt::format("{}", value));
  }
  void check(std::string_view option, double value, const std::string& shown) const;

  bool is_above_min;
  bool is_below_max;
};
/// (low, high]
constexpr Range above(double low, double high = std::numeric_limits<double>::infinity()) {
  return {{low, high}, /*leaves_min=*/true};
}
/// [low, high)
constexpr Range below(double low, double high) {
  return {{low, high}, /*leaves_min=*/false, /*leaves_max=*/true};
}

/// What a value is, so that shells can complete it; a model is a file, a folder or a name.
enum class ValueKind { text, file, folder, model };

using Words = std::vector<std::string>;

/// One option or positional argument as the user sees it.
struct OptionSpec {
  std::string name;         // without dashes
  std::string placeholder;  // "N"; empty for a flag
  std::string help;
  std::string default_text;  // empty: none worth showing
  std::string bare_value;    // what --name means where none of `choices` follows; empty: an error
  Words choices;
  std::string missing;  // what is said where it is not given; empty: it need not be
  ValueKind kind = ValueKind::text;
  std::vector<FileKind> takes;  // of a file; empty: it is not said
  char short_name = '\0';
  bool repeatable = false;
  bool required = false;  // positional arguments only
  std::function<void(std::string_view)> set;

  /// It must be given; `what` says what is expected ("expected a file ...").
  OptionSpec& needed(std::string what) {
    missing = std::move(what);
    return *this;
  }
  /// Its value is a file of one of these kinds.
  OptionSpec& of(std::vector<FileKind> kinds) {
    kind = ValueKind::file;
    takes = std::move(kinds);
    return *this;
  }
  /// The help with what else there is to say of the value: its choices and default.
  std::string explanation() const;
};

class OptionSet {
 public:
  explicit OptionSet(std::string program = "kvscope");  // --help is there from the start

  /// --name without a value.
  void flag(std::string name, std::string help, bool& target);

  /// --name VALUE. T: number, enum with EnumNames, text, path, std::optional of these, or
  /// std::vector of texts or paths (which makes the option repeatable). Setting a number checks
  /// its range.
  template <class T>
  OptionSpec& add(std::string name, std::string placeholder, std::string help, T& target,
                  const Range& range = {});

  /// Every option of a struct (core/base/fields.hpp); parse() checks their ranges.
  template <class Options>
  void fields(Options& target);

  /// An argument without dashes. Several may be declared; only the last may be a vector.
  template <class T>
  OptionSpec& positional(std::string name, std::string help, T& target, bool required);

  /// No two of these together; `why` is the rest of the sentence (": ...").
  void exclude(const Words& names, std::string why = "") { exclude_each(names, names, why); }
  /// None of these together with one of `others`.
  void exclude_each(Words names, Words others, std::string why = "");
  /// None of these without one of `needed`.
  void need(Words names, Words needed, std::string why = "");
  /// Called by parse() before rules and ranges are looked at, for values from elsewhere.
  void then(std::function<void(OptionSet&)> more) { more_.push_back(std::move(more)); }
  /// A value from elsewhere than the command line.
  void give(const OptionSpec& spec, std::string_view text);

  /// What who gave an argument too many may have meant, as the end of a sentence.
  void advise_argument(std::string advice) { argument_advice_ = std::move(advice); }

  /// Sets the targets from the arguments. Throws UsageError, naming the nearest known option for an
  /// unknown one.
  void parse(std::span<const std::string> args);

  /// A sentence, if an argument is a file of a kind that the command does not take; else nothing.
  /// parse() knows it as soon as it throws what another mistake is.
  std::string wrong_file() const;

  /// True once parse() met --help; targets are unchanged then.
  bool wants_help() const { return wants_help_; }
  /// True if the option (or positional argument) was given.
  bool given(std::string_view name) const;

  /// What was given as words of a command line: the command's own, arguments, then options, in
  /// the order of declaration, without the options `but` names; arguments that begin with a dash
  /// stand last, behind "--". However it was typed, the same options give the same words.
  Words words(std::string_view command, std::span<const std::string_view> but) const;
  /// The same as a shell takes it: "kvscope NAME --a 1 --b 2".
  std::string command_line(std::string_view command, std::span<const std::string_view> but) const;

  /// "Options:" and a line or more for each, without a command's frame.
  std::string text() const;

  const std::vector<OptionSpec>& options() const { return options_; }
  const std::vector<OptionSpec>& positionals() const { return positionals_; }

 private:
  struct Rule {
    Words names;
    Words others;
    bool excludes;  // else the names need one of the others
    std::string why;
  };
  template <class T>
  static OptionSpec make_spec(std::string name, std::string placeholder, std::string help,
                              T& target);
  OptionSpec& add_spec(OptionSpec spec);
  std::string shown(const std::string& name) const;
  void check_rules() const;
  [[noreturn]] void fail_unexpected(const std::string& text) const;
  /// ": WORD stands where KIND is expected" if one of several words was left out; else nothing.
  std::string taken_for_another() const;

  std::vector<OptionSpec> options_;
  std::vector<OptionSpec> positionals_;
  std::vector<Rule> rules_;
  std::vector<std::function<void()>> checks_;
  std::vector<std::function<void(OptionSet&)>> more_;
  Words given_;
  std::vector<std::pair<std::string, std::string>> values_;  // name, text; in the order given
  std::string program_;
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
  if constexpr (std::same_as<T, std::filesystem::path>) {
    return value.string();
  } else if constexpr (std::is_enum_v<T> || std::is_arithmetic_v<T> ||
                       std::same_as<T, std::string>) {
    return option_text(value);
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

template <class T>
OptionSpec& OptionSet::add(std::string name, std::string placeholder, std::string help, T& target,
                           const Range& range) {
  OptionSpec& spec =
      add_spec(make_spec(std::move(name), std::move(placeholder), std::move(help), target));
  if (!std::isinf(range.min)) {
    spec.set = [name = spec.name, set = std::move(spec.set), &target,
                range](std::string_view text) {
      set(text);
      if constexpr (std::is_arithmetic_v<T>) range.check(name, target);
      if constexpr (requires { *target + 1; }) range.check(name, *target);
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
      OptionSpec& spec = add(name,
                             std::is_floating_point_v<T>                         ? "X"
                             : std::is_arithmetic_v<T> && !std::same_as<T, bool> ? "N"
                                                                                 : "WORD",
                             help, value);
      if (!field.unit.empty()) {
        spec.set = [label = "--" + name, unit = field.unit, &value](std::string_view text) {
          parse_field(Field{.name = label, .help = "", .unit = unit}, text, value);
        };
      }
    }
  });
  checks_.push_back([&target] { check_fields(target); });
}

/// Puts options into the words of a command line, before a "--" if there is one.
void insert_options(std::vector<std::string>& words, const std::vector<std::string>& more);

}  // namespace kvscope
