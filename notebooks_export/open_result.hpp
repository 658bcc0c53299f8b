// Results as figures, tables and the explorer read them, from whatever file holds them: HDF5, CSV,
// JSON. The one place of this part that opens HDF5.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "analysis/figures/result_view.hpp"
#include "core/base/file_kind.hpp"

namespace kvscope {

/// What a result can be in, HDF5 first.
std::vector<FileKind> kinds_of_results();

/// Opens a result file (HDF5), a report with rows (JSON) or a table (CSV; kind "table"), told apart
/// by their contents. Throws IoError or FormatError, naming a file of another kind.
std::unique_ptr<ResultView> open_result(const std::filesystem::path& file);

/// The rows of a result: rows_of what open_result opens.
Table read_rows(const std::filesystem::path& file);

/// The rows of all files, one below the other; with several files a column "file" tells them apart.
Table read_rows(const std::vector<std::filesystem::path>& files);

}  // namespace kvscope
