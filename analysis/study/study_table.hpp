// One table over all results of a study.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/study/study_items.hpp"

namespace kvscope {

/// The rows of a command's result that answer an item, as CSV: those of its method and budget.
/// Columns that the item says itself, and rows of single heads, are left out. Empty: there is none.
/// `rows`: "rows" of the command's JSON.
std::string rows_of_item(const nlohmann::ordered_json& rows, const StudyItem& item);

struct StudyTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // [row][column]; "" is an empty cell
};

/// The item's rows below those of the table. Rows of layers become one, means over the layers
/// without a window (mass_min: the least), without intervals. `is_whole`: every row as it is, the
/// method also under the names that results have: selector, budget_kind, budget.
void add_item(StudyTable& table, const StudyItem& item, const std::string& csv, bool is_whole);
/// A line that only says what became of the item.
void add_remark(StudyTable& table, const StudyItem& item, const std::string& remark);

std::string study_csv(const StudyTable& table);
std::string study_markdown(const StudyTable& table);
nlohmann::ordered_json study_json(const StudyTable& table);

}  // namespace kvscope
