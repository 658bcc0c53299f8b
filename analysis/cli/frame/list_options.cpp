#include "analysis/cli/frame/list_options.hpp"

#include <fmt/format.h>

#include <charconv>

#include "analysis/options/exit_code.hpp"
#include "core/base/lists.hpp"
#include "core/selectors/spec_lists.hpp"

namespace kvscope::cli {

std::vector<Index> index_list_of(std::string_view text, std::string_view option) {
  return as_usage([&] { return parse_index_list(text, fmt::format("--{}", option)); });
}

std::vector<MethodSpec> selectors_of(const std::vector<std::string>& lists) {
  return as_usage([&] { return parse_methods(lists, "--selector"); });
}

std::vector<Budget> budgets_of(const std::vector<std::string>& lists) {
  for (const std::string& list : lists) {
    for (const std::string& word : split_words(list, ',')) {
      if (word.find('=') != std::string::npos) break;  // "p=0.5,0.9": its kind goes on
      double share = 0.0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), share);
      if (error != std::errc() || end != word.data() + word.size() || !(share > 0.0 && share < 1.0))
        continue;
      throw UsageError(
          "--budget: a number alone is a number of tokens, found {}; a share of the "
          "keys is ratio={}, a share of the attention p={}",
          word, word, word);
    }
  }
  return as_usage([&] { return split_budgets(lists); });
}

}  // namespace kvscope::cli
