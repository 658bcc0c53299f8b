// The fields that a paper table's rows and columns are keyed by: found among a result's columns,
// and read row by row as a key, a place in the order and a text to show.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/base/table.hpp"
#include "notebooks_export/paper_table.hpp"

namespace kvscope {

/// One row's value of a field.
struct FieldKey {
  std::string text;     // as shown; empty = this row has none
  std::string unit;     // orders budgets of different kinds apart
  double number = 0.0;  // orders numbers; NaN for text
};

/// One field of a spec, bound to a table (which must outlive it).
class TableField {
 public:
  /// `name` as in TableSpec; empty for an optional field that the rows [of the selection] do not
  /// distinguish. Throws ConfigError if the table has none of the columns.
  static std::optional<TableField> bind(const Table& table, std::string_view name,
                                        const std::vector<std::size_t>& rows,
                                        const TableSpec& spec);

  FieldKey key(std::size_t row) const;
  /// The heading: "Method", "Budget", "Length", "Layer".
  std::string title() const;
  /// The columns it reads.
  std::vector<std::string> columns() const;
  /// True if it reads column "selector" (or "method").
  bool is_method() const;
  /// The selector of this row, without its options; empty if is_method() is false.
  std::string method(std::size_t row) const;

 private:
  struct Part {
    const TableColumn* column = nullptr;
    const TableColumn* unit = nullptr;  // budget_kind beside budget, knob beside match
  };
  explicit TableField(const TableSpec& spec) : spec_(&spec) {}
  std::string part_text(const Part& part, std::size_t row) const;
  const TableSpec* spec_;
  std::string name_;
  std::vector<Part> parts_;
};

/// "full", "dense" and "greedy" (decoding without a draft) are full attention, names that begin
/// with "oracle" know the answer, others of the registry's family `controls` are controls.
RowRole role_of_method(std::string_view selector);

}  // namespace kvscope
