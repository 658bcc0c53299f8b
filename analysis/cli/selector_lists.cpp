#include "analysis/cli/selector_lists.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/cli/exit_code.hpp"

namespace kvscope::cli {

namespace {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

}  // namespace

std::vector<std::string> split_selectors(const std::vector<std::string>& lists) {
  std::vector<std::string> specs;
  for (const std::string& list : lists) {
    bool is_first = true;
    for (const std::string& part : split(list)) {
      if (part.empty())
        throw UsageError(
            fmt::format("--selector: expected names between the commas of \"{}\"", list));
      const bool is_option = part.find('=') < part.find(':');
      if (is_option && is_first) {
        throw UsageError(
            fmt::format("--selector: expected a method's name first, found \"{}\"", part));
      }
      if (is_option) {
        const bool has_options = specs.back().find(':') != std::string::npos;
        specs.back() = fmt::format("{}{}{}", specs.back(), has_options ? ',' : ':', part);
      } else {
        specs.push_back(part);
      }
      is_first = false;
    }
  }
  return specs;
}

std::vector<Budget> split_budgets(const std::vector<std::string>& lists) {
  std::vector<Budget> budgets;
  for (const std::string& list : lists) {
    std::string kind = "tokens";
    for (const std::string& part : split(list)) {
      const std::size_t equals = part.find('=');
      if (equals != std::string::npos) kind = part.substr(0, equals);
      budgets.push_back(
          Budget::parse(equals == std::string::npos ? fmt::format("{}={}", kind, part) : part));
    }
  }
  return budgets;
}

}  // namespace kvscope::cli
