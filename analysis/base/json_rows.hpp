// Rows of a table as JSON: a list of flat objects, of which each has the cells that it has.
#pragma once

#include <string>
#include <vector>

#include "core/base/json.hpp"

namespace kvscope {

/// The columns that rows have, in the order in which they come.
std::vector<std::string> row_columns(const Json& rows);
/// The cell as text; "" where the row has nothing.
std::string row_cell(const Json& row, const std::string& column);
/// A header and a line for each row; text is quoted where it must be. `columns`: those that the
/// rows have, unless given.
std::string rows_csv(const Json& rows, std::vector<std::string> columns = {});

}  // namespace kvscope
