// How the summary of an analysis is shown: a table per layer with the totals under it, a line of
// words; and the cells of a report's rows.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kvscope::cli {

/// One column of the table: a key of the summary's rows and how it is headed.
struct ReportColumn {
  std::string key;
  std::string header;
};

/// The rows under "layers", one line each, then one line "all" from "totals". Columns whose key no
/// row has are left out; without any known column, every number of the rows is shown.
std::string summary_table(const nlohmann::ordered_json& summary,
                          const std::vector<ReportColumn>& columns);

/// A number of the totals; NaN if it is not there.
double total_of(const nlohmann::ordered_json& totals, std::string_view key);

/// Cells of a row: its number in so many digits, or as percent; "-" where there is none.
std::string number_cell(const nlohmann::ordered_json& row, std::string_view key, int digits = 4);
std::string percent_cell(const nlohmann::ordered_json& row, std::string_view key);

}  // namespace kvscope::cli
