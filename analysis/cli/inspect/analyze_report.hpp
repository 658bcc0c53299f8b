// How the summary of an analysis is shown: a table per layer with the totals under it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kvscope::cli {

/// One column of the table: a key of the summary's rows and how it is headed.
struct ReportColumn {
  std::string key;
  std::string header;
};

/// The rows under "layers", one line each, then one line "all" from "totals". Columns whose key no
/// row has are left out; without any known column, every number of the rows is shown. Empty without
/// rows.
std::string summary_table(const nlohmann::ordered_json& summary,
                          const std::vector<ReportColumn>& columns);

}  // namespace kvscope::cli
