// Writing a text file whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace kvscope::cli {

/// Writes FILE.part and renames it: no half-written file appears under the name, and an existing
/// one stays if anything fails. Throws IoError if the file exists (unless overwrite) or cannot be
/// written.
void save_text(const std::filesystem::path& file, std::string_view text, bool overwrite);

}  // namespace kvscope::cli
