// Fields of CSV as kvscope writes it; analysis/read_table reads it.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>
#include <type_traits>

namespace kvscope {

/// Text as a field: as it is, or in quotes (RFC 4180) if it needs them.
std::string csv_field(std::string_view text);

/// A number as a field, in the shortest form that reads back; empty for NaN and infinities.
template <class T>
std::string csv_number(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return {};
  }
  return fmt::format("{}", value);
}

}  // namespace kvscope
