// Numbers of a simulation's table, by method and column.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>

#include "analysis/simulate/simulation.hpp"

namespace kvscope::test {

/// The first row of a method, by how its name begins, under a protocol if one is named.
inline const ColumnTable::Row& row_of(const ColumnTable& table, const std::string& selector,
                                      const std::string& protocol = "") {
  for (const ColumnTable::Row& row : table.rows) {
    if (row.texts[2].starts_with(selector) && (protocol.empty() || row.texts[6] == protocol))
      return row;
  }
  throw std::runtime_error("no row of " + selector + " " + protocol);
}

inline double number(const ColumnTable& table, const std::string& selector, std::string_view column,
                     const std::string& protocol = "") {
  const auto at = std::ranges::find(table.number_names, column) - table.number_names.begin();
  return row_of(table, selector, protocol).numbers.at(static_cast<std::size_t>(at));
}

inline double number(const SimulationResult& result, const std::string& selector,
                     std::string_view column, const std::string& protocol = "") {
  return number(result.table, selector, column, protocol);
}

}  // namespace kvscope::test
