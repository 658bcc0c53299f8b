// What every command that writes a file asks before the work, and the writing of text.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

namespace kvscope::cli {

/// Throws UsageError if `out`, given as option `option`, is one of the files that the command
/// reads: the inputs, and the parts of those that are trace sets.
void refuse_input(const std::filesystem::path& out, std::string_view option,
                  std::span<const std::filesystem::path> inputs);

/// Refuses an output before anything is computed. `out` was given as option `option` ("out");
/// `replace` is the flag that lets it replace a file ("--overwrite"). Throws as refuse_input, and
/// IoError if it exists (unless overwrite), is a folder, a
/// device, a pipe or a link to nothing, or if its folder is missing or may not be written.
void check_new_output(const std::filesystem::path& out, std::string_view option,
                      std::span<const std::filesystem::path> inputs, bool overwrite,
                      std::string_view replace);

/// Writes a text whole or not at all (core/base/new_file.hpp). Throws IoError if the file exists
/// (unless overwrite) or cannot be written.
void save_text(const std::filesystem::path& file, std::string_view text, bool overwrite);

}  // namespace kvscope::cli
