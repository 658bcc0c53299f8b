// What the rows of a simulation's table are means of, kept beside the table: readers compare rows
// unit by unit.
#pragma once

#include <string_view>
#include <vector>

#include "core/trace/result_writer.hpp"

namespace kvscope {

/// The array of a result file that holds it: f64 [row of the table, unit], NaN behind a row's last.
inline constexpr std::string_view kRowUnits = "units/value";

/// values: [row][unit], rows in the table's order. Rows that are compared have the same units in
/// the same order. Throws what ResultWriter throws.
void write_row_units(ResultWriter& output, const std::vector<std::vector<double>>& values,
                     std::string_view meaning);

}  // namespace kvscope
