// The program kvscope as a function: finds the subcommand, runs it, and turns errors into one line
// and an exit code.
#pragma once

#include <string>
#include <vector>

namespace kvscope::cli {

/// words: the command line after the program's name. Returns an ExitCode. What went wrong is
/// note()d as one line, which begins with "kvscope: ".
int run_program(const std::vector<std::string>& words);

/// The same as all that a process does: standard streams, broken pipes and crashes in HDF5 are
/// seen to first.
int run_as_process(const std::vector<std::string>& words);

}  // namespace kvscope::cli
