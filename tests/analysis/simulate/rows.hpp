// Numbers of a simulation's table, by method and column.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "analysis/simulate/simulation.hpp"

namespace kvscope::test {

/// The first row of a method, by how its name begins, under a protocol if one is named.
inline std::size_t row_of(const Table& table, const std::string& selector,
                          const std::string& protocol = "") {
  for (std::size_t row = 0; row < table.n_rows(); ++row) {
    if (table.text("selector").at(row).starts_with(selector) &&
        (protocol.empty() || table.text("protocol").at(row) == protocol))
      return row;
  }
  throw std::runtime_error("no row of " + selector + " " + protocol);
}

inline double number(const Table& table, const std::string& selector, std::string_view column,
                     const std::string& protocol = "") {
  return table.numbers(column)[row_of(table, selector, protocol)];
}

inline double number(const SimulationResult& result, const std::string& selector,
                     std::string_view column, const std::string& protocol = "") {
  return number(result.table, selector, column, protocol);
}

}  // namespace kvscope::test
