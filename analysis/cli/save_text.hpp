// What every command that writes a file asks before the work, and the writing of text.
#pragma once

#include <filesystem>
#include <string_view>

namespace kvscope::cli {

/// Refuses an output before anything is computed. `replace` is the flag that lets it replace a
/// file ("--overwrite"). Throws IoError if it exists (unless overwrite), is a folder, a device, a
/// pipe or a link to nothing, or if its folder is missing or may not be written; ConfigError if it
/// was read (core/base/read_files.hpp). Inputs that are opened later are asked for then
/// (refuse_read_file), and once more when the file gets its name.
void check_new_output(const std::filesystem::path& out, bool overwrite, std::string_view replace);

/// Writes a text whole or not at all (core/base/new_file.hpp). Throws IoError if the file exists
/// (unless overwrite) or cannot be written.
void save_text(const std::filesystem::path& file, std::string_view text, bool overwrite);

}  // namespace kvscope::cli
