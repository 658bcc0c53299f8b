// Lists of selectors and budgets as users type them, with commas and repeated options.
#pragma once

#include <string>
#include <vector>

#include "core/selectors/selector.hpp"

namespace kvscope::cli {

/// "quest,quoka:n-queries=8,pairing=rank" to {"quest", "quoka:n-queries=8,pairing=rank"}: an
/// assignment without a method in front belongs to the method before it. Throws UsageError naming
/// --selector.
std::vector<std::string> split_selectors(const std::vector<std::string>& lists);

/// "tokens=64,128,ratio=0.25": a bare number is of the kind before it, tokens at first. Throws
/// ConfigError for a budget that is none.
std::vector<Budget> split_budgets(const std::vector<std::string>& lists);

}  // namespace kvscope::cli
