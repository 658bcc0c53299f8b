#include "analysis/cli/inspect/analyze_report.hpp"

#include <algorithm>
#include <utility>

#include "analysis/cli/frame/text_table.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {

namespace {

std::string cell_text(const Json& row, const std::string& key) {
  const auto found = row.find(key);
  if (found == row.end()) return "";
  if (found->is_number_integer()) return found->dump();
  if (found->is_number()) return number_text(found->get<double>());
  if (found->is_string()) return found->get<std::string>();
  if (found->is_boolean()) return found->get<bool>() ? "yes" : "no";
  return found->is_null() ? "-" : "";
}

std::vector<ReportColumn> columns_of(const Json& rows, const std::vector<ReportColumn>& wanted) {
  const auto some_row_has = [&](const std::string& key) {
    return std::ranges::any_of(rows, [&](const Json& row) { return row.contains(key); });
  };
  std::vector<ReportColumn> columns;
  for (const auto& column : wanted) {
    if (some_row_has(column.key)) columns.push_back(column);
  }
  if (!columns.empty() || rows.empty()) return columns;
  for (const auto& [key, value] : rows.front().items()) {
    if (!value.is_structured()) columns.push_back({key, key});
  }
  return columns;
}

}  // namespace

std::string summary_table(const Json& summary, const std::vector<ReportColumn>& wanted) {
  const Json rows = summary.value("layers", Json::array());
  if (rows.empty()) return "";
  const Json totals = summary.value("totals", Json::object());
  const auto columns = columns_of(rows, wanted);
  std::vector<std::string> header = {"layer"};
  for (const auto& column : columns) {
    if (column.key != "layer") header.push_back(column.header);
  }
  TextTable table(header);
  const auto add = [&](const std::string& first, const Json& row) {
    std::vector<std::string> cells = {first};
    for (const auto& column : columns) {
      if (column.key != "layer") cells.push_back(cell_text(row, column.key));
    }
    table.add_row(std::move(cells));
  };
  for (std::size_t i = 0; i < rows.size(); ++i)
    add(rows[i].contains("layer") ? cell_text(rows[i], "layer") : std::to_string(i), rows[i]);
  const bool has_totals = std::ranges::any_of(
      columns, [&](const ReportColumn& column) { return totals.contains(column.key); });
  if (has_totals) add("all", totals);
  return table.text();
}

}  // namespace kvscope::cli
