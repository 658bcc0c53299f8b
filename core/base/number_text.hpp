// Numbers as people read and write them: parsed from a whole word, shown with a unit.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvscope {

/// The number that all of `text` is (no blanks, no sign +), whatever the locale; nothing if it is
/// none or does not fit.
template <class T>
std::optional<T> number_from(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// A whole number, also one of 1024 (k) or 1024^2 (M): "4096", "4k", "1M"; nothing if it is none.
std::optional<std::int64_t> count_from(std::string_view text);

/// "1.5 GiB", "812 KiB", "96 bytes".
std::string bytes_text(double n_bytes);

/// "12.3 s", "850 ms", "2 min 5 s".
std::string seconds_text(double seconds);

/// A number for a table: up to `digits` significant digits, "-" for NaN.
std::string number_text(double value, int digits = 4);

/// "93.1 %", "-" for NaN.
std::string percent_text(double share);

}  // namespace kvscope
