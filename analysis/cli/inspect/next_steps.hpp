// `kvscope FILE`: what a file is, and the commands that take it next.
#pragma once

#include <string>

namespace kvscope::cli {

/// A sentence about a recording, a result, a model, a store, a table, a study file or a text, and
/// three lines to type. Throws what `kvscope info` does where the file is none of them.
std::string file_and_next_steps(const std::string& file);

}  // namespace kvscope::cli
