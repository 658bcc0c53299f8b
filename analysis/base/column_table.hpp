// A result table of text and number columns, and its three spellings: CSV, JSON rows, HDF5 arrays.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
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

/// Header and one line per row, with a last column config_hash; NaN is empty, text is quoted where
/// it must be, whole numbers have no point.
std::string table_csv(const ColumnTable& table, const std::string& config_hash);

/// [{...}] with the same columns; NaN is null.
nlohmann::ordered_json table_json(const ColumnTable& table, const std::string& config_hash);

/// Arrays rows/COLUMN [row]. Text columns are numbers; returns {COLUMN: [text of each number]}.
nlohmann::ordered_json write_table(const ColumnTable& table, ResultWriter& output);

}  // namespace kvscope
