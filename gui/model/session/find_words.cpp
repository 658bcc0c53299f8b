#include "gui/model/session/find_words.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

namespace kvscope::gui {

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::vector<std::string> lower_words(std::string_view typed) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : lowered(typed) + " ") {
    if (c != ' ' && c != '\t' && c != ',' && c != '=') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  return words;
}

bool holds_all(const std::string& text, const std::vector<std::string>& words) {
  return std::ranges::all_of(
      words, [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

}  // namespace kvscope::gui
