// What went, or is called otherwise here: words of a command line for which there is another way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvscope {

/// What to use instead of a command ("merge", "bench decode") that went; empty for others.
std::string_view instead_of(std::string_view word);

/// Behind "unknown option --word": ". Did you mean --other?" or ". Instead: ..."; empty if nothing
/// is known. known: the options that there are, without dashes; prefix stands before them.
std::string option_meant(std::string_view word, const std::vector<std::string>& known,
                         std::string_view prefix);

}  // namespace kvscope
