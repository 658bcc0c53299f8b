// A file as one text, up to a limit; a folder as what lies in it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace kvscope {

/// The bytes of `file` ("-" is standard input), which may be a pipe that has a writer. Throws
/// IoError if it cannot be read, is a folder, a device or a pipe without a writer, or is
/// longer than max_bytes.
std::string read_whole_file(const std::filesystem::path& file, std::size_t max_bytes);

/// The same for a name that another file gave us (a manifest, a session): nothing but a regular
/// file is opened for reading, so that no device or pipe can hold us up or fill the memory.
std::string read_regular_file(const std::filesystem::path& file, std::size_t max_bytes);

/// What lies in a folder, sorted; nothing if there is none, or it cannot be read.
std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& folder);

/// Throws IoError unless `file` is a regular file, or a link to one.
void check_regular_file(const std::filesystem::path& file);

}  // namespace kvscope
