// Fields of CSV as kvscope writes it; analysis/base/read_table.hpp reads it.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>
#include <type_traits>

namespace kvscope {

/// Text as a field: as it is, or in quotes (RFC 4180) if it needs them. Text that a spreadsheet
/// would calculate ("=1+1") gets an apostrophe in front, which csv_text_of takes away.
std::string csv_field(std::string_view text);

/// The text that csv_field wrote, once its quotes are gone.
std::string csv_text_of(std::string_view field);

/// A number as a field, in the shortest form that reads back; empty for NaN and infinities.
template <class T>
std::string csv_number(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return {};
  }
  return fmt::format("{}", value);
}

}  // namespace kvscope
