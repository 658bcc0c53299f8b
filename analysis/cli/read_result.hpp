// Result files of every command and format as tidy rows: what kvscope table reads.
#pragma once

#include <filesystem>
#include <vector>

#include "notebooks_export/tidy_table.hpp"

namespace kvscope::cli {

/// CSV, JSON or HDF5, told apart by their first bytes. HDF5: the arrays rows/*, with the summary's
/// categories as text, or the summary's "layers". Throws IoError or FormatError.
TidyTable read_result_rows(const std::filesystem::path& file);

/// The rows of all files, one below the other; with several files a column "file" tells them apart.
TidyTable read_result_rows(const std::vector<std::filesystem::path>& files);

}  // namespace kvscope::cli
