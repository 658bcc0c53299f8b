// From tidy rows to the cells of a paper table: which rows count, what they are keyed by, and the
// mean and spread of what falls into each cell.
#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/sweep/match_rows.hpp"
#include "notebooks_export/paper_table.hpp"
#include "notebooks_export/table_fields.hpp"

namespace kvscope {

using RowSlots = std::vector<std::size_t>;
using KeyTexts = std::vector<std::string>;

/// One value of the spec, bound to the table.
struct BoundValue {
  const TableColumn* column = nullptr;
  const TableColumn* low = nullptr;
  const TableColumn* high = nullptr;
  std::string title;
  Better better = Better::neither;
  NumberFormat format;
  Derive derive = Derive::none;
  std::string quantity;  // values of one quantity are ranked once
};

/// Rows that the rules for results left out, for the table's note.
struct LeftOut {
  /// Prompts that the dense model does not answer: "common_words" to the lengths, as texts.
  std::map<std::string, KeyTexts> unsolved;
  bool has_windows = false;  // layers with a sliding window
};

/// Running mean and spread of the rows behind one cell.
struct CellSample {
  double sum = 0.0;
  double squares = 0.0;
  double low_sum = 0.0;
  double high_sum = 0.0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  std::size_t n = 0;
  std::vector<std::size_t> rows;  // of the table: those with a value
  bool is_doubted = false;        // a gate doubts one of the rows: column `doubt` names it
  bool keeps_all = true;          // all of the rows are of every key: their density is 1
  bool missed_cost = false;       // one of the rows is of another cost (MatchedRows)

  void add(std::size_t row, double value, double low, double high) {
    if (std::isnan(value)) return;
    rows.push_back(row);
    sum += value;
    squares += value * value;
    low_sum += low;
    high_sum += high;
    min = std::min(min, value);
    max = std::max(max, value);
    ++n;
  }
  double mean() const {
    return n > 0 ? sum / static_cast<double>(n) : std::numeric_limits<double>::quiet_NaN();
  }
  double sd() const {
    if (n < 2) return std::numeric_limits<double>::quiet_NaN();
    const double count = static_cast<double>(n);
    return std::sqrt(std::max(0.0, (squares - sum * sum / count) / (count - 1.0)));
  }
};

/// Distinct keys in the order in which they are shown.
struct PivotKeys {
  std::vector<std::vector<FieldKey>> keys;
  std::map<KeyTexts, std::size_t> index;

  std::size_t find_or_add(const std::vector<FieldKey>& key) {
    KeyTexts texts;
    for (const FieldKey& part : key) texts.push_back(part.text);
    const auto [found, is_new] = index.try_emplace(texts, keys.size());
    if (is_new) keys.push_back(key);
    return found->second;
  }
};

/// The samples of all cells: by row key, column key and value.
struct TablePivot {
  PivotKeys rows;
  PivotKeys columns;  // whole keys only
  std::map<std::tuple<std::size_t, KeyTexts, std::size_t>, CellSample> samples;
  std::vector<RowRole> roles;         // by row key
  std::vector<RowRole> column_roles;  // by column key

  /// The sample under a column's key, or under one that leaves fields open.
  const CellSample* find(std::size_t row, const KeyTexts& column, std::size_t value) const;
};

/// The rows that the spec's `where` and the rules for sweeps and prompts leave; a `where` of column
/// match keeps methods without a setting. Throws ConfigError if none.
RowSlots chosen_rows(const Table& table, const TableSpec& spec, const MatchedRows& matched,
                     LeftOut& left_out);

/// The spec's fields; optional ones that distinguish nothing are left out.
std::vector<TableField> bind_fields(const Table& table, const KeyTexts& names, const RowSlots& rows,
                                    const TableSpec& spec);

/// Throws ConfigError if two selectors, budgets, phases, ... would be averaged into one cell; at
/// equal cost two costs, not budgets.
void check_alike(const Table& table, const RowSlots& rows, const MatchedRows& matched,
                 const std::vector<TableField>& row_fields,
                 const std::vector<TableField>& column_fields);

/// Throws ConfigError for text, a column without numbers in `rows`, or without recorded interval.
BoundValue bind_value(const Table& table, const TableValue& value, const RowSlots& rows,
                      Spread spread);

/// Throws ConfigError for more cells than a page can hold. `matched`: which rows missed their cost.
TablePivot make_pivot(const RowSlots& rows, const std::vector<TableField>& row_fields,
                      const std::vector<TableField>& column_fields,
                      const std::vector<BoundValue>& values, const Table& table,
                      const MatchedRows& matched);

/// Column slots as shown: numbers ascend within their unit, text keeps the order of first
/// appearance, level by level.
std::vector<std::size_t> column_order(const TablePivot& pivot);

/// Row slots as shown: group by group, and in each full methods, methods, controls, oracles.
std::vector<std::size_t> row_order(const TablePivot& pivot);

KeyTexts texts_of(const std::vector<FieldKey>& key);

}  // namespace kvscope
