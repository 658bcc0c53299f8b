// A table in memory: columns of numbers or words, one line per thing measured; what figures, paper
// tables and lists of results are made of, whichever command and file format the rows came from.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/trace/result_writer.hpp"

namespace kvscope {

/// Words by number: a million lines with a few different words stay small. "" is an empty cell.
struct TextColumn {
  std::vector<std::string> categories;
  std::vector<std::int32_t> codes;  // [n_rows] into categories
  const std::string& at(std::size_t row) const {
    return categories[static_cast<std::size_t>(codes[row])];
  }
};

/// Makes a TextColumn from words that come one after the other.
class TextColumnBuilder {
 public:
  void add(std::string_view word);
  TextColumn take() { return std::move(column_); }

 private:
  TextColumn column_;
  std::map<std::string, std::int32_t, std::less<>> code_of_;
};

/// One column of a table.
struct TableColumn {
  std::string name;
  bool is_text = false;
  std::vector<double> numbers;  // [n_rows] unless is_text; NaN is an empty cell
  TextColumn words;             // [n_rows] if is_text

  /// The cell as text: "" where it is empty, shortest form that reads back for a number.
  std::string cell(std::size_t row) const;
};

/// What the numbers of one column are means of: [row][unit], NaN for a unit that a row lacks. Rows
/// that are compared have the same units in the same order.
struct RowUnits {
  std::string column;
  std::vector<std::vector<double>> values;
};

class Table {
 public:
  /// `name` is what messages call it: a file, usually.
  explicit Table(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  std::size_t n_rows() const { return n_rows_; }
  /// In the order in which they were added.
  const std::vector<TableColumn>& columns() const { return columns_; }

  /// Null if there is no such column.
  const TableColumn* find(std::string_view column) const;
  /// Throws ConfigError that lists the columns there are.
  const TableColumn& at(std::string_view column) const;

  bool has(std::string_view column) const;  // a column of numbers
  bool has_text(std::string_view column) const;
  /// Throw ConfigError, naming the columns there are, for an unknown column or one of the other
  /// type.
  std::span<const double> numbers(std::string_view column) const;
  const TextColumn& text(std::string_view column) const;

  /// Throw ShapeError if the column has another length than the others, ConfigError if there is one
  /// of that name. Names and words become clean text (core/base/escape.hpp): they come from files.
  void add_numbers(std::string name, std::vector<double> values);
  void add_text(std::string name, TextColumn values);
  /// The same word in every line.
  void add_text(std::string name, std::string word);
  /// Null if the table does not know what its numbers are means of.
  const RowUnits* units() const { return units_.column.empty() ? nullptr : &units_; }
  /// Throws ShapeError if there are not as many as rows.
  void set_units(RowUnits units);
  /// The rows of `other` below these; cells of columns that only one of them has are empty, and a
  /// column of words in one of them is one in the result.
  /// Units of another column than these are left out.
  void append(const Table& other);

 private:
  TableColumn& new_column(std::string typed, std::size_t length);
  [[noreturn]] void fail(std::string_view column, std::string_view kind) const;

  std::string name_;
  std::size_t n_rows_ = 0;
  RowUnits units_;
  std::vector<TableColumn> columns_;
  std::map<std::string, std::size_t, std::less<>> place_of_;  // in columns_, by name
};

/// Rows that are objects as a table: the columns of the fullest row, words in front of numbers.
/// Cells that a row lacks are empty.
Table table_of_rows(const nlohmann::ordered_json& rows, std::string name);

/// Header and one line per row, with a last column config_hash; NaN is empty, text is quoted where
/// it must be, whole numbers have no point.
std::string table_csv(const Table& table, const std::string& config_hash);

/// [{...}] with the same columns; NaN is null.
nlohmann::ordered_json table_json(const Table& table, const std::string& config_hash);

/// Arrays rows/COLUMN [row]. Text columns are numbers; returns {COLUMN: [text of each number]}.
nlohmann::ordered_json write_table(const Table& table, ResultWriter& output);

}  // namespace kvscope
