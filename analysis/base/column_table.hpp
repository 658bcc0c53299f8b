// A result table of text and number columns, and its three spellings: CSV, JSON rows, HDF5 arrays.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/trace/result_writer.hpp"

namespace kvscope {

struct ColumnTable {
  struct Row {
    std::vector<std::string> texts;  // [text_names.size()]
    std::vector<double> numbers;     // [number_names.size()], NaN = no value
  };
  std::vector<std::string> text_names;
  std::vector<std::string> number_names;
  std::vector<Row> rows;
};

/// A further row of a table, written column by column. The first row names the columns; all rows
/// have the same ones.
class NewRow {
 public:
  explicit NewRow(ColumnTable& table)
      : table_(table), is_first_(table.rows.empty()), row_(table.rows.emplace_back()) {}
  void add(std::string_view column, std::string text) {
    if (is_first_) table_.text_names.emplace_back(column);
    row_.texts.push_back(std::move(text));
  }
  void add(std::string_view column, double number) {
    if (is_first_) table_.number_names.emplace_back(column);
    row_.numbers.push_back(number);
  }

 private:
  ColumnTable& table_;
  bool is_first_;
  ColumnTable::Row& row_;
};

/// Header and one line per row, with a last column config_hash; NaN is empty, text is quoted where
/// it must be, whole numbers have no point.
std::string table_csv(const ColumnTable& table, const std::string& config_hash);

/// [{...}] with the same columns; NaN is null.
nlohmann::ordered_json table_json(const ColumnTable& table, const std::string& config_hash);

/// Arrays rows/COLUMN [row]. Text columns are numbers; returns {COLUMN: [text of each number]}.
nlohmann::ordered_json write_table(const ColumnTable& table, ResultWriter& output);

}  // namespace kvscope
