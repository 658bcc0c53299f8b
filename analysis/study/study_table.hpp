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
/// True for the rows of the item's method and budget, those of single heads among them.
bool is_answer(const nlohmann::ordered_json& row, const StudyItem& item);

/// What becomes of an item's rows.
enum class StudyRows {
  means,        // rows of layers become one, means over the layers without a window (mass_min: the
                // least), without intervals
  named_means,  // the same; the method also under the names of results: selector, budget_kind,
                // budget
  all,          // every row as it is, with these names
};

struct StudyTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // [row][column]; "" is an empty cell
};

/// The item's rows below those of the table.
void add_item(StudyTable& table, const StudyItem& item, const std::string& csv, StudyRows rows);
/// A cell of the table's last row; an empty one changes nothing.
void put_cell(StudyTable& table, const std::string& column, std::string cell);
/// Without rows of layers with a window, and of layers that one method leaves dense at every budget
/// in the same model, text and protocol: means over the others compare. `table`: StudyRows::all.
StudyTable common_layers(StudyTable table);
/// A line that only says what became of the item.
void add_remark(StudyTable& table, const StudyItem& item, const std::string& remark);

std::string study_csv(const StudyTable& table);
std::string study_markdown(const StudyTable& table);
nlohmann::ordered_json study_json(const StudyTable& table);

}  // namespace kvscope
