#include "core/base/lists.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

// No model has so many layers or heads; keeps "0-9999999999" from allocating.
constexpr Index kMaxListed = 1'000'000;

}  // namespace

std::vector<std::string> split_words(std::string_view text, char separator) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::vector<Index> parse_index_list(std::string_view text, std::string_view name) {
  std::vector<Index> list;
  for (const std::string& part : split_words(text, ',')) {
    const std::string_view word = part;
    const std::size_t dash = word.find('-');
    const auto first = count_from(word.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : count_from(word.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxListed)
      throw ConfigError("{}: expected numbers and ranges like 0,3-5, found \"{}\"", name, part);
    for (Index i = *first; i <= *last; ++i) list.push_back(i);
  }
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

}  // namespace kvscope
