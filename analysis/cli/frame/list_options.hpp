// Lists that are values of options: what the library's readers refuse is an error of usage here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/selectors/method_spec.hpp"

namespace kvscope::cli {

/// "0,3-5" as {0, 3, 4, 5} (core/base/lists.hpp). `option` is named without its dashes. Throws
/// UsageError.
std::vector<Index> index_list_of(std::string_view text, std::string_view option);

/// The values of --selector as methods (core/selectors/spec_lists.hpp). Throws UsageError.
std::vector<MethodSpec> selectors_of(const std::vector<std::string>& lists);

/// The values of --budget (core/selectors/spec_lists.hpp). Throws UsageError, also for a bare
/// share: "0.1" is no number of tokens.
std::vector<Budget> budgets_of(const std::vector<std::string>& lists);

}  // namespace kvscope::cli
