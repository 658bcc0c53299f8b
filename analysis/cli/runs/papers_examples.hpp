// Constructed recordings that contradict what the papers print: kvscope papers --example
// NAME writes them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kvscope::cli {

/// Writes the recording `name` to `out`. theorem-b1: two layers, each one counterexample of
/// QuoKA's Theorem B.1 as printed. error-bound: a decode step whose output error is twice (1 -
/// kept mass) times the largest value norm. Throws UsageError for another name, IoError if `out`
/// cannot be written.
void write_example(const std::string& name, const std::filesystem::path& out, bool overwrite);

}  // namespace kvscope::cli
