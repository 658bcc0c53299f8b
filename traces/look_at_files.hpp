// Many files that are only looked at: each is opened once, in one of several processes that may die
// of it (looker.hpp), and says there what is to be known of it.
//
// HDF5 does one thing at a time in a process, so threads would not make this faster; and who opens
// a file to read on opens it twice, there and here.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "traces/looker.hpp"

namespace kvscope {

/// [files]: what `open` gave to Looker::say() for each; empty where the file did not open, or there
/// was no process to be had: open it here, which says why.
std::vector<std::optional<std::string>> look_at_files(std::span<const std::filesystem::path> files,
                                                      OpenFunction open, int n_processes);

}  // namespace kvscope
