#include "analysis/papers/expand.hpp"

#include <algorithm>

namespace kvscope::papers {

namespace {

/// Words of the command as written; quotes are taken away, and such words are never split again.
struct RawWord {
  std::string text;
  bool quoted = false;
};

std::vector<RawWord> split_words(std::string_view command) {
  std::vector<RawWord> words;
  RawWord word;
  bool open = false;
  bool begun = false;
  for (const char c : command) {
    if (c == '\'') {
      open = !open;
      word.quoted = begun = true;
    } else if (c == ' ' && !open) {
      if (begun) words.push_back(std::move(word));
      word = {};
      begun = false;
    } else {
      word.text += c;
      begun = true;
    }
  }
  if (begun) words.push_back(std::move(word));
  return words;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

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

bool is_one_name(std::string_view text) {
  return text.size() > 2 && text.front() == '{' && text.find('}') == text.size() - 1;
}

}  // namespace

std::vector<std::string> expand(std::string_view command, const Substitute& substitute) {
  std::vector<std::string> words;
  for (const RawWord& raw : split_words(command)) {
    const std::string text = replace_names(raw.text, substitute);
    if (raw.quoted || !is_one_name(raw.text)) {
      words.push_back(text);
      continue;
    }
    for (std::string& word : lines_of(text)) words.push_back(std::move(word));
  }
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
