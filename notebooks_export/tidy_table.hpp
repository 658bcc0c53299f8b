// A result as rows of named columns: what paper tables are made of, whichever command and file
// format it came from.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kvscope {

/// One column. Numbers: NaN is an empty cell. Text: "" is an empty cell.
struct TidyColumn {
  std::string name;
  bool is_text = false;
  std::vector<double> numbers;     // [n_rows] unless is_text
  std::vector<std::string> texts;  // [n_rows] if is_text
};

class TidyTable {
 public:
  std::size_t n_rows() const { return n_rows_; }
  const std::vector<TidyColumn>& columns() const { return columns_; }

  /// Null if there is no such column.
  const TidyColumn* find(std::string_view name) const;
  /// Throws ConfigError that lists the columns there are.
  const TidyColumn& at(std::string_view name) const;

  /// These throw ShapeError if the length is not that of the columns before, ConfigError if the
  /// name is taken.
  void add(std::string name, std::vector<double> numbers);
  void add(std::string name, std::vector<std::string> texts);
  /// The rows of `other` below these; cells of columns that only one of them has are empty.
  void append(const TidyTable& other);

  /// The cell as text: "" where it is empty, shortest form that reads back for a number.
  std::string text(const TidyColumn& column, std::size_t row) const;

 private:
  TidyColumn& new_column(std::string name, std::size_t n_rows);
  std::vector<TidyColumn> columns_;
  std::size_t n_rows_ = 0;
};

/// A header line, then one line per row, quoted as in RFC 4180. A column whose cells are all
/// numbers or empty is a number column. Throws FormatError naming the line for anything else.
TidyTable tidy_table_from_csv(std::string_view text, const std::string& where);

/// A list of flat objects, or an object that holds one under "rows" or "layers" (also inside
/// "summary"). null is empty, true and false are 1 and 0; nested values are left out. Throws
/// FormatError.
TidyTable tidy_table_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace kvscope
