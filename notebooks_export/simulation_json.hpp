// The grids and curves of a simulation's JSON report as the arrays that its HDF5 result has.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/trace/result_writer.hpp"

namespace kvscope {

/// Declares and writes grid/KIND [pair, length, depth] with its axes from "grids", and
/// curve/log_perplexity [pair, position] from "curves"; nothing where the report has neither. What
/// the rows are means of (units/value) from "outcomes", else from the curves, in blocks of 64.
/// Throws FormatError, naming `where`, for lists that do not fit together.
void write_simulation_arrays(const nlohmann::json& report, const std::string& where,
                             ResultWriter& output);

}  // namespace kvscope
