// An option stands once: the initialiser of a struct's member says its name, default, help and
// limits, and command line, JSON, HDF5 attributes and controls follow from that.
//
//   struct QuokaOptions {
//     Index budget = option(budget, "budget", 1024, "past keys kept per KV head", at_least(1));
//   };
//
// Members stay plain values. The list of a type's options (options_of) is made once, by looking on
// while one object of it is built: options of bases and of members that have options come with it,
// in the order of construction. A type that names a base as SharedOptions lists that one's last.
//
// Types: bool, Index, int, double, std::string, and enums (core/base/enum_names.hpp).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <concepts>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/enum_names.hpp"
#include "core/base/error.hpp"
#include "core/base/index.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

/// The numbers that an option takes.
struct Limits {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::string_view unit = {};  // that may stand behind the number
};
constexpr Limits at_least(double low) {
  return {.min = low};
}
constexpr Limits in(double low, double high, std::string_view unit = {}) {
  return {low, high, unit};
}

/// Name, help and admissible range of one option.
struct Field {
  std::string_view name;  // "page-size" on the command line, "page_size" in files
  std::string_view help;  // in the user's terms, with the unit
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::string_view unit = {};  // see Limits
};

/// The same with underscores, as files and Python have it.
std::string snake_case(std::string_view name);

/// An enum's value whose type is known to its option alone.
struct EnumRef {
  std::span<const std::string_view> names;  // by value, from 0
  int (*get)(const void*);
  void (*set)(void*, int);
  void* at;

  int index() const { return get(at); }
  std::string_view name() const { return names[static_cast<std::size_t>(index())]; }
  EnumRef& operator=(int index) {
    set(at, index);
    return *this;
  }
};

/// One option of a type: what is said of it, and where it lies in an object.
struct Option {
  enum class Kind { flag, index, number, real, text, word };
  Field field;
  Kind kind = Kind::flag;
  std::ptrdiff_t at = 0;
  EnumRef word{};  // kind word
};

namespace detail {

/// Who looks on while an object is built, from its own making to its end, also if the object's
/// constructor throws. The last one made looks on; one at a time per thread.
class OptionRecorder {
 public:
  OptionRecorder(std::byte* object, std::size_t size);
  ~OptionRecorder();
  OptionRecorder(const OptionRecorder&) = delete;
  OptionRecorder& operator=(const OptionRecorder&) = delete;

  void add(const void* member, Option option);
  std::vector<Option> take() { return std::move(options_); }

 private:
  const std::byte* object_;
  std::size_t size_;
  std::vector<Option> options_;
  OptionRecorder* outer_;
};
/// Null: nobody looks on.
OptionRecorder* option_recorder();

template <class T>
Option blank_option() {
  Option option;
  if constexpr (std::is_enum_v<T>) {
    option.kind = Option::Kind::word;
    option.word = {EnumNames<T>::value,
                   [](const void* at) { return static_cast<int>(*static_cast<const T*>(at)); },
                   [](void* at, int index) { *static_cast<T*>(at) = static_cast<T>(index); },
                   nullptr};
  } else if constexpr (std::same_as<T, bool>) {
    option.kind = Option::Kind::flag;
  } else if constexpr (std::same_as<T, Index>) {
    option.kind = Option::Kind::index;
  } else if constexpr (std::same_as<T, int>) {
    option.kind = Option::Kind::number;
  } else if constexpr (std::same_as<T, double>) {
    option.kind = Option::Kind::real;
  } else {
    static_assert(std::same_as<T, std::string>);
    option.kind = Option::Kind::text;
  }
  return option;
}

}  // namespace detail

/// The default value of a member, as its initialiser: `member` is the member itself.
template <class T>
T option(T& member, std::string_view name, std::type_identity_t<T> value, std::string_view help,
         Limits limits = {}) {
  if (detail::OptionRecorder* const recorder = detail::option_recorder()) {
    Option said = detail::blank_option<T>();
    said.field = {name, help, limits.min, limits.max, limits.unit};
    recorder->add(std::addressof(member), said);
  }
  return value;
}

/// The options of a type, in order.
template <class T>
std::span<const Option> options_of() {
  static const std::vector<Option> options = [] {
    alignas(T) std::byte memory[sizeof(T)];
    std::vector<Option> found;
    T* object = nullptr;
    {
      detail::OptionRecorder recorder(memory, sizeof(T));
      object = new (memory) T();
      found = recorder.take();
    }
    std::destroy_at(object);
    if constexpr (requires { typename T::SharedOptions; }) {  // of a base: behind the own ones
      const auto n_shared =
          static_cast<std::ptrdiff_t>(options_of<typename T::SharedOptions>().size());
      std::rotate(found.begin(), found.begin() + n_shared, found.end());
    }
    return found;
  }();
  return options;
}

/// Calls visit(field, value) for each option of an object: value is a bool, Index, int, double,
/// std::string or EnumRef, to be read or set.
template <class Visit>
void visit_fields(std::span<const Option> options, void* object, Visit&& visit) {
  for (const Option& option : options) {
    void* const at = static_cast<std::byte*>(object) + option.at;
    switch (option.kind) {
      case Option::Kind::flag:
        visit(option.field, *static_cast<bool*>(at));
        break;
      case Option::Kind::index:
        visit(option.field, *static_cast<Index*>(at));
        break;
      case Option::Kind::number:
        visit(option.field, *static_cast<int*>(at));
        break;
      case Option::Kind::real:
        visit(option.field, *static_cast<double*>(at));
        break;
      case Option::Kind::text:
        visit(option.field, *static_cast<std::string*>(at));
        break;
      case Option::Kind::word: {
        EnumRef word = option.word;
        word.at = at;
        visit(option.field, word);
        break;
      }
    }
  }
}
template <class Options, class Visit>
void visit_fields(Options& options, Visit&& visit) {
  using Plain = std::remove_const_t<Options>;
  visit_fields(options_of<Plain>(), const_cast<Plain*>(std::addressof(options)),
               std::forward<Visit>(visit));
}

/// "one of a, b, c" for an enum, else a word for the type.
template <class T>
std::string expected_text(const T& value = {}) {
  if constexpr (std::same_as<T, EnumRef>) {
    return fmt::format("one of {}", fmt::join(value.names, ", "));
  } else if constexpr (std::is_enum_v<T>) {
    return fmt::format("one of {}", fmt::join(EnumNames<T>::value, ", "));
  } else if constexpr (std::same_as<T, bool>) {
    return "true or false";
  } else if constexpr (std::integral<T>) {
    return "a whole number";
  } else if constexpr (std::floating_point<T>) {
    return "a number";
  } else {
    return "text";
  }
}

/// A value as it is written on a command line.
template <class T>
std::string option_text(const T& value) {
  if constexpr (std::same_as<T, EnumRef>) {
    return std::string(value.name());
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(enum_name(value));
  } else {
    return fmt::format("{}", value);
  }
}

namespace detail {
/// The value of that name; -1: none.
int find_name(std::span<const std::string_view> names, std::string_view text);
}  // namespace detail

/// Parses `text` into `value`; throws ConfigError naming the field, what was expected and
/// what was found.
template <class T>
void parse_field(const Field& field, std::string_view text, T& value) {
  const auto fail = [&] {
    throw ConfigError(
        fmt::format("{}: expected {}, found \"{}\"", field.name, expected_text(value), text));
  };
  if constexpr (std::same_as<T, EnumRef>) {
    const int found = detail::find_name(value.names, text);
    if (found < 0) fail();
    value = found;
  } else if constexpr (std::is_enum_v<T>) {
    const int found = detail::find_name(EnumNames<T>::value, text);
    if (found < 0) fail();
    value = static_cast<T>(found);
  } else if constexpr (std::same_as<T, bool>) {
    if (text != "true" && text != "false") fail();
    value = text == "true";
  } else if constexpr (std::same_as<T, Index>) {
    const auto count = count_from(text);
    if (!count) fail();
    value = *count;
  } else if constexpr (std::is_arithmetic_v<T>) {
    T parsed{};
    std::string_view number = text;
    if (number.ends_with(field.unit)) number.remove_suffix(field.unit.size());
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), parsed);
    if (error != std::errc{} || end != number.data() + number.size()) fail();
    value = parsed;
  } else {
    value = std::string(text);
  }
}

/// Throws ConfigError for the first option outside its limits.
void check_fields(std::span<const Option> options, const void* object);
template <class Options>
void check_fields(const Options& options) {
  check_fields(options_of<Options>(), std::addressof(options));
}

}  // namespace kvscope
