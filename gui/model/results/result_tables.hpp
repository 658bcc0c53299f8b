// What of a result can be listed: its rows, and each of its arrays with the coordinates of every
// element.
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/result_view.hpp"

namespace kvscope::gui {

/// Something that load_table can make a table of.
struct TableSource {
  std::string name;  // "rows", "layers", or an array's
  Index n_rows = 0;
  std::string shape;      // "8 x 8 x 64", empty for rows
  std::string axes;       // "layer, q_head, step"
  std::string units;      // "nat"; "1" for pure numbers
  std::string long_name;  // what an axis of a plot would be called
};

/// Rows (or the summary's layers) first, then the arrays in the result's order. Parts of the rows
/// are not listed again.
std::vector<TableSource> table_sources(const ResultView& result);

/// "rows" and "layers": as figures and paper tables read them. An array: one column per axis, with
/// its coordinates, and one with the values; one line per element, at most kMostListed. Throws
/// ConfigError for a name that is none or an array that is too large, FormatError for a damaged
/// result.
Table load_table(const ResultView& result, const std::string& source);
inline constexpr Index kMostListed = Index{4} << 20;

/// Bytes that a table takes.
std::size_t bytes_of(const Table& table);

}  // namespace kvscope::gui
