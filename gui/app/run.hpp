// Runs the explorer: in a window until it is closed, or for one picture.
#pragma once

#include "gui/app/command_line.hpp"

namespace kvscope::gui {

/// Returns the process' exit code. Throws ConfigError, IoError or FormatError for what keeps it
/// from starting: an unknown panel, no display, a screenshot's trace that cannot be read.
int run(const CommandLine& line);

}  // namespace kvscope::gui
