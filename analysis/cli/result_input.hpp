// Results as figures read them, from whatever file holds them: HDF5, CSV, JSON.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "analysis/figures/result_view.hpp"

namespace kvscope::cli {

/// Opens a result file (.h5), a table (.csv; kind "table") or a report with rows (.json). What it
/// is, is decided by its contents. Throws IoError or FormatError.
std::unique_ptr<ResultView> open_result(const std::filesystem::path& file);

/// "xxh128:" and the hash of all bytes of a file.
std::string hash_file(const std::filesystem::path& file);

}  // namespace kvscope::cli
