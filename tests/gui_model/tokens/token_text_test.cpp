// Tokens as people read them, and found again by search.
#include "gui/model/tokens/token_text.hpp"

#include <catch2/catch_test_macros.hpp>
#include <random>

namespace kvscope::gui::test::token_text_test {

using Positions = std::vector<std::size_t>;

/// True for well-formed UTF-8 by the table of the Unicode standard (3-7), written out byte by byte.
bool is_utf8(const std::string& text) {
  const auto in = [&](std::size_t i, unsigned low, unsigned high) {
    return i < text.size() && static_cast<unsigned char>(text[i]) >= low &&
           static_cast<unsigned char>(text[i]) <= high;
  };
  for (std::size_t i = 0; i < text.size();) {
    const auto tail = [&](std::size_t at) { return in(at, 0x80, 0xbf); };
    if (in(i, 0x00, 0x7f)) {
      i += 1;
    } else if (in(i, 0xc2, 0xdf) && tail(i + 1)) {
      i += 2;
    } else if (((in(i, 0xe0, 0xe0) && in(i + 1, 0xa0, 0xbf)) ||
                (in(i, 0xe1, 0xec) && tail(i + 1)) ||
                (in(i, 0xed, 0xed) && in(i + 1, 0x80, 0x9f)) ||
                (in(i, 0xee, 0xef) && tail(i + 1))) &&
               tail(i + 2)) {
      i += 3;
    } else if (((in(i, 0xf0, 0xf0) && in(i + 1, 0x90, 0xbf)) ||
                (in(i, 0xf1, 0xf3) && tail(i + 1)) ||
                (in(i, 0xf4, 0xf4) && in(i + 1, 0x80, 0x8f))) &&
               tail(i + 2) && tail(i + 3)) {
      i += 4;
    } else {
      return false;
    }
  }
  return true;
}

/// Every start of the needle in the running text, by comparing at each offset.
Positions naive_find(const std::vector<std::string>& tokens, std::string needle) {
  std::string text;
  Positions owner;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    text += tokens[i];
    owner.resize(text.size(), i);
  }
  const auto lower = [](std::string s) {
    for (char& c : s) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return s;
  };
  text = lower(text);
  needle = lower(needle);
  Positions found;
  for (std::size_t at = 0; !needle.empty() && at + needle.size() <= text.size(); ++at) {
    if (text.compare(at, needle.size(), needle) != 0) continue;
    if (found.empty() || found.back() != owner[at]) found.push_back(owner[at]);
  }
  return found;
}

TEST_CASE("whatever the bytes, the text is valid UTF-8 on one line") {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    const auto n = random() % 12;
    for (std::size_t i = 0; i < n; ++i) bytes += static_cast<char>(random() % 256);
    const std::string text = printable(bytes);
    INFO(bytes);
    CHECK(is_utf8(text));
    CHECK(text.find('\n') == std::string::npos);
    CHECK(text.empty() == bytes.empty());
  }
}

TEST_CASE("search agrees with comparing at every place") {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> tokens(random() % 12);
    for (std::string& token : tokens) {
      const auto n = random() % 4;
      for (std::size_t i = 0; i < n; ++i) token += "aAbB"[random() % 4];
    }
    std::string needle;
    const auto n = random() % 4;
    for (std::size_t i = 0; i < n; ++i) needle += "aAbB"[random() % 4];
    CHECK(find_text(tokens, needle).positions == naive_find(tokens, needle));
  }
}

}  // namespace kvscope::gui::test::token_text_test
