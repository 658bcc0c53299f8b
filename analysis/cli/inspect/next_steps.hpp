// `kvscope FILE`: what a file is, and the commands that take it next.
#pragma once

#include <string>

namespace kvscope::cli {

/// A sentence about the file, and up to three lines to type. Throws what `kvscope info` does for a
/// damaged recording or result, and where there is no file.
std::string file_and_next_steps(const std::string& file);

}  // namespace kvscope::cli
