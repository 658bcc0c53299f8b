// A table as a list on screen: which of its lines are shown, in which order, as text, and where in
// the session a line leads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/base/table.hpp"
#include "analysis/plot/figure.hpp"
#include "gui/model/session/session.hpp"

namespace kvscope::gui {

/// What a column's cells must be. Columns of words: they contain the text, in either case; "=text"
/// exactly, "!text" not. Columns of numbers: "3", ">0.5", "<=2", "!=0", "0.2..0.5" (both ends
/// included), "empty", "!empty".
struct ColumnFilter {
  std::string column;
  std::string text;
  bool operator==(const ColumnFilter&) const = default;
};

struct TableArrangement {
  std::vector<ColumnFilter> filters;
  std::string sort_column;  // empty: as the file has them
  bool descending = false;
  bool operator==(const TableArrangement&) const = default;
  /// For keys of a cache.
  std::string key() const;
  /// "layer: 3, selector: quoka"; empty without filters.
  std::string filter_words() const;
};

/// Lines of a table.
struct RowOrder {
  std::vector<std::uint32_t> rows;
  std::size_t bytes() const { return sizeof *this + rows.size() * sizeof(std::uint32_t); }
};

/// False for a text that is none of the spellings of ColumnFilter: it is ignored.
bool is_valid_filter(const TableColumn& column, std::string_view text);

/// Lines that pass all filters, sorted; equal cells in the order of the file, empty ones last.
/// Filters and sort columns that the table does not have are ignored. Throws Interrupted on a stop.
RowOrder arrange_rows(const Table& table, const TableArrangement& arrangement,
                      const std::stop_token& stop);

/// Columns in the order in which one reads them, as places in table.columns(): as the file has
/// them, but what names a line first where they come by alphabet, as from HDF5.
std::vector<std::size_t> reading_order(const Table& table);

/// A number as a list shows it: at most 6 digits; the tooltip has all of them.
std::string short_cell(const TableColumn& column, std::size_t row);

/// Header and one line per row, with every digit.
std::string rows_csv(const Table& table, std::span<const std::uint32_t> rows,
                     std::span<const std::string> columns);

/// Where a line leads: what its columns "layer", "q_head" (or "head"), "selector", "budget",
/// "phase", "query" ("row", "step", "pos"), "key" say.
struct RowTarget {
  std::optional<Index> layer;
  std::optional<Index> q_head;
  std::optional<Index> query;
  std::optional<Index> key;
  std::optional<std::string> selector;
  std::optional<Index> budget;    // tokens
  std::optional<double> nucleus;  // p
  bool empty() const {
    return !layer && !q_head && !query && !key && !selector && !budget && !nucleus;
  }
  /// "layer 3, query head 5, quoka, budget 256".
  std::string words() const;
};

/// Cells that are empty, no whole numbers, or no known method lead nowhere.
RowTarget target_of(const Table& table, std::size_t row);

/// Where a cell of a layer x head map leads; nowhere for other maps.
RowTarget target_of_cell(const plot::Panel& panel, Index row, Index col);

/// Whether a line is about what is selected: its layer is, and so are its head, method and budget
/// as far as it names any.
bool is_about_selection(const Table& table, std::size_t row, const Session& session);

/// Selects what is named, as far as the open trace has it. One step of undo.
void go_to(Session& session, const RowTarget& target, std::string_view origin);

}  // namespace kvscope::gui
