#include "core/selectors/spec_lists.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/lists.hpp"

namespace kvscope {

std::vector<MethodSpec> parse_methods(const std::vector<std::string>& lists,
                                      std::string_view name) {
  std::vector<std::string> texts;
  for (const std::string& list : lists) {
    bool is_first = true;
    for (const std::string& part : split_words(list, ',')) {
      if (part.empty())
        throw ConfigError("{}: expected names between the commas of \"{}\"", name, list);
      const bool is_option = part.find('=') < part.find_first_of(":@+");
      if (is_option && is_first)
        throw ConfigError("{}: expected a method's name first, found \"{}\"", name, part);
      if (is_option) {
        texts.back() += "," + part;
      } else {
        texts.push_back(part);
      }
      is_first = false;
    }
  }
  return {texts.begin(), texts.end()};
}

std::vector<Budget> split_budgets(const std::vector<std::string>& lists) {
  std::vector<Budget> budgets;
  for (const std::string& list : lists) {
    std::string kind = "tokens";
    for (const std::string& part : split_words(list, ',')) {
      const std::size_t equals = part.find('=');
      if (equals != std::string::npos) kind = part.substr(0, equals);
      budgets.push_back(
          Budget::parse(equals == std::string::npos ? fmt::format("{}={}", kind, part) : part));
    }
  }
  return budgets;
}

}  // namespace kvscope
