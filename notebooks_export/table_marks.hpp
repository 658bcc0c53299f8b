// Which cells of a paper table are the best and the second of those that compete.
#pragma once

#include <cstddef>
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

/// Marks cells by the rules of make_paper_table. True if a recorded interval decided about a mark.
bool mark_methods(PaperTable& table, const TableLayout& layout);

}  // namespace kvscope
