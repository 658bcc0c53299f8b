// Lists of selectors and of budgets as people type them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/selectors/method_spec.hpp"

namespace kvscope {

/// "quest,quoka:n-queries=8,pairing=rank" to {quest, quoka:n-queries=8,pairing=rank}: an
/// assignment without a method in front belongs to the (last stage of the) method before it. `name`
/// is what messages call the lists: "--selector". Throws ConfigError.
std::vector<MethodSpec> parse_methods(const std::vector<std::string>& lists, std::string_view name);

/// "tokens=64,128,ratio=0.25": a bare number is of the kind before it, tokens at first. Throws
/// ConfigError.
std::vector<Budget> split_budgets(const std::vector<std::string>& lists);

}  // namespace kvscope
