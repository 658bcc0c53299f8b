// An experiment file: the options of a command as one JSON object, so that a run can be kept and
// repeated.
#pragma once

#include <filesystem>

#include "analysis/options/options.hpp"

namespace kvscope::cli {

/// Sets every option that the file names and the command line did not give. Keys are option names
/// with dashes or underscores (positional arguments: "traces"); lists set repeatable options one by
/// one and are joined with commas for the others. Throws UsageError for an unknown key (naming the
/// nearest) or a value of the wrong kind, IoError or FormatError for a file that cannot be read.
void apply_experiment_file(const std::filesystem::path& file, OptionSet& options);

}  // namespace kvscope::cli
