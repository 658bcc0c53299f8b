// Lists as people type them: "a,b,c" and "0,4-7".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/index.hpp"

namespace kvscope {

/// "a,b,,c" to {"a", "b", "", "c"}; empty text to one empty word.
std::vector<std::string> split_words(std::string_view text, char separator);

/// "0,3-5" to {0, 3, 4, 5}, ascending and without repeats. `name` is what messages call the list:
/// "--layers". Throws ConfigError for anything else, and for numbers >= 1e6.
std::vector<Index> parse_index_list(std::string_view text, std::string_view name);

}  // namespace kvscope
