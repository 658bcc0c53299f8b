// What sweep does with a finished table: a file in one of three formats, and a summary for people.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "analysis/sweep/sweep_result.hpp"

namespace kvscope::cli {

/// Writes the table; the file gets its name when it is whole.
void write_sweep_output(const SweepResult& result, const std::filesystem::path& out,
                        bool overwrite);

struct SweepSummary {
  std::string text;
  /// What a reader of the numbers may take for an error, or for more than it is.
  std::vector<std::string> remarks;
};

/// One line per trace, selector and budget: means over the layers without a sliding window. Layers
/// that a method leaves dense count with their mass of 1; the last column says how many those are.
SweepSummary sweep_summary(const SweepResult& result);

}  // namespace kvscope::cli
