// Results as tables of rows, and tables as results.
#pragma once

#include <functional>
#include <span>

#include "analysis/base/table.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

/// The columns "rows/NAME" of a result as a table, where those that summary.categories names are
/// words; else the summary's list "layers". Throws FormatError if the result has neither.
Table rows_of(const ResultView& result);

/// A table as a result with arrays rows/NAME: the other way round. `more` may
/// write further arrays.
void table_to_result(const Table& table, const ResultInfo& info, ResultWriter& output,
                     const std::function<void(ResultWriter&)>& more = {});

namespace figures {

/// These rows of a table, in this order.
Table rows_in(const Table& table, std::span<const std::size_t> rows);

}  // namespace figures

}  // namespace kvscope
