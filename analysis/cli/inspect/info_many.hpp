// What a folder of recordings holds: a line for each, and sums.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kvscope::cli {

/// Traces and results of a folder (not of those below), by name.
std::vector<std::filesystem::path> recordings_in(const std::filesystem::path& folder);

/// {"what": "recordings", "folder", "n_files", "n_tokens", "file_bytes", "n_damaged", "files":
/// [what describe_file says of each; {"what": "damaged", "file", "problem"} of one that
/// does not open]}.
nlohmann::ordered_json describe_folder(const std::filesystem::path& folder,
                                       const std::vector<std::filesystem::path>& files);
/// A table of it.
std::string folder_text(const nlohmann::ordered_json& folder);

}  // namespace kvscope::cli
