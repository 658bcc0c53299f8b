// A word as a shell takes it, for command lines that people copy.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvscope {

/// `word` itself if a shell reads it as it stands, else in single quotes.
inline std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// The words of a line that command_line_of() wrote.
inline std::vector<std::string> words_of_line(std::string_view line) {
  std::vector<std::string> words;
  bool is_open = false;  // a word
  bool is_quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == ' ' && !is_quoted) {
      is_open = false;
      continue;
    }
    if (!is_open) words.emplace_back();
    is_open = true;
    if (c == '\'') {
      is_quoted = !is_quoted;
    } else if (c == '\\' && !is_quoted && i + 1 < line.size()) {
      words.back() += line[++i];
    } else {
      words.back() += c;
    }
  }
  return words;
}

/// "kvscope sweep 'a b.h5'": the words behind what the line begins with.
inline std::string command_line_of(const std::vector<std::string>& words,
                                   std::string line = "kvscope") {
  for (const std::string& word : words) line += " " + shell_word(word);
  return line;
}

}  // namespace kvscope
