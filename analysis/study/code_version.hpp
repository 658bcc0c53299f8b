// Which code numbers were made with.
#pragma once

#include <string_view>

namespace kvscope {

/// 8 hexadecimal digits over the committed sources that decide numbers: those of core, traces and
/// the computing part of analysis, and of the commands that a study runs. Pages, windows, figures
/// and other commands may change without it. "unknown" outside a git checkout.
std::string_view code_version();

}  // namespace kvscope
