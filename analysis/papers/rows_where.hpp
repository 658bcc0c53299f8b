// Which rows of a result's table a Value's `where` means.
#pragma once

#include <string>
#include <vector>

#include "analysis/base/table.hpp"

namespace kvscope::papers {

/// Rows that meet "selector=quoka;budget>=256;q_head=" ("q_head=": an empty cell), ascending.
/// Throws ConfigError for a part without a comparison.
std::vector<std::size_t> rows_where(const Table& table, const std::string& where);

}  // namespace kvscope::papers
