// What one file says of itself: a trace or a result, as kvscope info shows it.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace kvscope::cli {

/// {"what": "trace", "file", "file_bytes", "status", "model": {...}, ...} or {"what": "result",
/// ...}. Throws IoError, or FormatError with what is wrong with the file as a trace.
nlohmann::ordered_json describe_file(const std::filesystem::path& file);

}  // namespace kvscope::cli
