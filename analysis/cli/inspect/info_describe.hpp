// What one file says of itself: a trace or a result, as kvscope info shows it.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kvscope::cli {

/// {"what": "trace", "file", "file_bytes", "status", "model": {...}, ...} or {"what": "result",
/// ...}. Throws IoError, or FormatError with what is wrong with the file as a trace.
nlohmann::ordered_json describe_file(const std::filesystem::path& file);

/// The same of whatever `kvscope info` takes: also models ("checkpoint", "GGUF file"), stores and
/// folders of recordings.
nlohmann::ordered_json describe(const std::string& what);

}  // namespace kvscope::cli
