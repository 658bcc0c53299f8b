// An options struct lists its fields once; command line, JSON, HDF5 attributes and controls follow
// from that list.
//
// A struct takes part by a static member that visits every field with its name, help and range:
//
//   struct QuokaOptions {
//     Index budget = 1024;
//     template <class Self, class Visit>
//     static void visit_fields(Self& self, Visit&& visit) {
//       visit(Field{"budget", "past keys kept per KV head"}.at_least(1), self.budget);
//     }
//   };
//
// Field types: bool, Index, int, double, std::string, and enums (core/base/enum_names.hpp).
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/enum_names.hpp"
#include "core/base/error.hpp"
#include "core/base/index.hpp"

namespace kvscope {

/// Name, help and admissible range of one field.
struct Field {
  std::string_view name;  // "page-size" on the command line, "page_size" in files
  std::string_view help;  // in the user's terms, with the unit
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();

  Field at_least(double low) const { return {name, help, low, max}; }
  Field in(double low, double high) const { return {name, help, low, high}; }
};

/// "one of a, b, c" for an enum, else a word for the type.
template <class T>
std::string expected_text() {
  if constexpr (std::is_enum_v<T>) {
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

/// Parses `text` into `value`; throws ConfigError naming the field, what was expected and
/// what was found.
template <class T>
void parse_field(const Field& field, std::string_view text, T& value) {
  const auto fail = [&] {
    throw ConfigError(
        fmt::format("{}: expected {}, found \"{}\"", field.name, expected_text<T>(), text));
  };
  if constexpr (std::is_enum_v<T>) {
    const auto& names = EnumNames<T>::value;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == text) {
        value = static_cast<T>(i);
        return;
      }
    }
    fail();
  } else if constexpr (std::same_as<T, bool>) {
    if (text != "true" && text != "false") fail();
    value = text == "true";
  } else if constexpr (std::is_arithmetic_v<T>) {
    T parsed{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
    if (error != std::errc{} || end != text.data() + text.size()) fail();
    value = parsed;
  } else {
    value = std::string(text);
  }
}

/// Throws ConfigError for the first field outside its range.
template <class Options>
void check_fields(const Options& options) {
  Options::visit_fields(options, [](const Field& field, const auto& value) {
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_arithmetic_v<T> && !std::same_as<T, bool>) {
      const double x = static_cast<double>(value);
      if (!(x >= field.min && x <= field.max)) {
        throw ConfigError(fmt::format("{}: expected {} {}, found {}", field.name,
                                      std::isinf(field.max) ? "at least" : "a value in",
                                      std::isinf(field.max)
                                          ? fmt::format("{}", field.min)
                                          : fmt::format("[{}, {}]", field.min, field.max),
                                      value));
      }
    }
  });
}

}  // namespace kvscope
