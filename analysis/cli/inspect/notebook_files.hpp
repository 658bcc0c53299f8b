// The files behind a notebook: results as given, and the traces that they are about.
#pragma once

#include <filesystem>
#include <vector>

#include "notebooks_export/notebook_kinds.hpp"

namespace kvscope::cli {

/// Opens every result and finds its traces: `traces` if given (by uuid, or by place for partial
/// ones), else the file that the result names, as it stands or beside the result. A trace that is
/// not there is left out of nothing: its expected place is written, and the notebook says so and
/// skips what needs it. Paths come out relative to the folder of `notebook`. Throws IoError or
/// FormatError for unreadable files, ConfigError for a trace that no result is about.
NotebookInputs notebook_inputs(const std::vector<std::filesystem::path>& results,
                               const std::vector<std::filesystem::path>& traces,
                               const std::filesystem::path& notebook);

}  // namespace kvscope::cli
