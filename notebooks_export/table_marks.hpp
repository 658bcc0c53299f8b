// Which cells of a paper table are the best and the second of those that compete.
#pragma once

#include <optional>
#include <vector>

#include "notebooks_export/paper_table.hpp"

namespace kvscope {

/// Where a table's methods stand, and what each column is.
struct TableLayout {
  bool methods_in_rows = false;
  std::optional<std::size_t> method_level;  // of the header, if columns are methods
  std::vector<Better> better;               // by column
  std::vector<RowRole> column_roles;        // by column
  std::vector<std::size_t> ranked_by;       // by column: the one whose marks it has, often itself
};

/// What marks were decided by.
struct MarkedBy {
  bool has_units = false;      // paired differences
  bool has_intervals = false;  // the recorded interval of the better one
  bool has_shown = false;      // what is shown alone
  bool is_undecided = false;   // of some column nothing is marked: the first two are not apart
};

/// Marks cells by the rules of make_paper_table.
MarkedBy mark_methods(PaperTable& table, const TableLayout& layout);

}  // namespace kvscope
