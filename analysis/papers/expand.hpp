// Command lines of items as words: names in braces become files of the report's folder, models
// and chosen heads.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace kvscope::papers {

/// Gives the text that stands for "{name}"; a line feed separates words, no text at all is no word.
/// Throws ConfigError for a name it does not know.
using Substitute = std::function<std::string(std::string_view name)>;

/// Splits at blanks ('...' keeps them) and replaces every {name}. A word that is one {name} becomes
/// as many words as its text has lines.
std::vector<std::string> expand(std::string_view command, const Substitute& substitute);

/// True of names that choose from another run's table: "pick:..." and "--chat:...".
inline bool is_choice(std::string_view name) {
  return name.starts_with("pick:") || name.starts_with("--chat:");
}

/// The names in braces, in their order, each once.
std::vector<std::string> names_in(std::string_view command);

}  // namespace kvscope::papers
