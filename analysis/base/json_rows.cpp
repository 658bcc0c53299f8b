#include "analysis/base/json_rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "analysis/base/mapped.hpp"
#include "core/base/csv_text.hpp"

namespace kvscope {

std::vector<std::string> row_columns(const Json& rows) {
  std::vector<std::string> names;
  for (const Json& row : rows) {
    for (const auto& [name, value] : row.items()) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string row_cell(const Json& row, const std::string& column) {
  const auto found = row.find(column);
  if (found == row.end() || found->is_null()) return "";
  if (found->is_string()) return found->get<std::string>();
  return found->is_number_float() ? csv_number(found->get<double>()) : found->dump();
}

std::string rows_csv(const Json& rows, std::vector<std::string> columns) {
  if (columns.empty()) columns = row_columns(rows);
  std::string csv = fmt::format("{}\n", fmt::join(mapped<std::string>(columns, csv_field), ","));
  for (const Json& row : rows) {
    const auto cells = mapped<std::string>(
        columns, [&](const std::string& column) { return csv_field(row_cell(row, column)); });
    csv += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return csv;
}

}  // namespace kvscope
