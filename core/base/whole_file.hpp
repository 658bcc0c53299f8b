// A file as one text, up to a limit.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace kvscope {

/// The bytes of `file` ("-" is standard input). Throws IoError if it cannot be read or is longer
/// than max_bytes.
std::string read_whole_file(const std::filesystem::path& file, std::size_t max_bytes);

}  // namespace kvscope
