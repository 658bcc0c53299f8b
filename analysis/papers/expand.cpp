#include "analysis/papers/expand.hpp"

#include <algorithm>
#include <sstream>

namespace kvscope::papers {

namespace {

/// The text with every {name} replaced.
std::string replace_names(std::string_view text, const Substitute& substitute) {
  std::string out;
  while (!text.empty()) {
    const std::size_t open = text.find('{');
    const std::size_t close = open == text.npos ? text.npos : text.find('}', open);
    if (close == text.npos) return out + std::string(text);
    out += text.substr(0, open);
    out += substitute(text.substr(open + 1, close - open - 1));
    text.remove_prefix(close + 1);
  }
  return out;
}

}  // namespace

std::vector<std::string> expand(std::string_view command, const Substitute& substitute) {
  std::vector<std::string> words;
  std::string raw;
  bool is_open = false;
  bool is_quoted = false;  // some of it: such words are never split again
  const auto end_word = [&] {
    const bool is_one_name = raw.starts_with('{') && raw.find('}') == raw.size() - 1;
    std::istringstream lines(replace_names(raw, substitute));
    if (is_one_name && !is_quoted) {
      for (std::string line; std::getline(lines, line);) words.push_back(line);
    } else if (is_quoted || !raw.empty()) {
      words.push_back(lines.str());
    }
    raw.clear();
    is_quoted = false;
  };
  for (const char c : command) {
    if (c == '\'') is_open = !is_open;
    is_quoted |= c == '\'';
    if (c == ' ' && !is_open) end_word();
    if (c != '\'' && (c != ' ' || is_open)) raw += c;
  }
  end_word();
  return words;
}

std::vector<std::string> names_in(std::string_view command) {
  std::vector<std::string> names;
  replace_names(command, [&](std::string_view name) {
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
    return std::string();
  });
  return names;
}

}  // namespace kvscope::papers
