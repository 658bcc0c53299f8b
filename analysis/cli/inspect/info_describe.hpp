// What a file, a model, a store or a folder says of itself, as kvscope info shows it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kvscope::cli {

/// {"what": "trace", "file", "file_bytes", "status", "model": {...}, ...} or {"what": "result",
/// ...}; also of models ("checkpoint", "GGUF file"), stores ("store") and folders ("recordings": a
/// file that does not open is {"what": "damaged", "file", "problem"}). Throws IoError, or
/// FormatError with what is wrong with the file as a trace.
nlohmann::ordered_json describe(const std::string& what);

}  // namespace kvscope::cli
