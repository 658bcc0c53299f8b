#include "analysis/cli/list_options.hpp"

#include <fmt/format.h>

#include "analysis/cli/exit_code.hpp"
#include "core/base/lists.hpp"
#include "core/selectors/spec_lists.hpp"

namespace kvscope::cli {

std::vector<Index> index_list_of(std::string_view text, std::string_view option) {
  return as_usage([&] { return parse_index_list(text, fmt::format("--{}", option)); });
}

std::vector<MethodSpec> selectors_of(const std::vector<std::string>& lists) {
  return as_usage([&] { return parse_methods(lists, "--selector"); });
}

}  // namespace kvscope::cli
