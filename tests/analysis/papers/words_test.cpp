// What a claim quotes stands in the paper's own text, four words at a time.
#include <fmt/format.h>

#include <cctype>
#include <fstream>
#include <map>
#include <set>
#include <span>

#include "analysis/papers/item.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/test.hpp"

namespace kvscope::papers::words_test {

using Words = std::vector<std::string>;

/// As tests/golden/papers/make.py divides a text.
Words words_of(std::string_view text) {
  Words words;
  bool is_inside = false;
  for (const char c : text) {
    const bool is_letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (is_letter && !is_inside) words.emplace_back();
    if (is_letter) words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    is_inside = is_letter;
  }
  return words;
}

std::string number_of(std::span<const std::string> four) {
  std::uint64_t number = 0xCBF29CE484222325ULL;
  for (const char c : fmt::format("{}", fmt::join(four, " ")))
    number = (number ^ static_cast<std::uint8_t>(c)) * 0x100000001B3ULL;
  return fmt::format("{:010x}", number >> 24);
}

std::set<std::string> numbers_of(const std::string& paper) {
  std::ifstream in(kvscope::test::golden_dir() / "papers" / (paper + ".words"));
  std::set<std::string> numbers;
  for (std::string line; std::getline(in, line);) numbers.insert(line);
  return numbers;
}

/// What of a quotation the text does not say.
Words not_said(const std::string& quotation, const std::set<std::string>& text) {
  Words missing;
  std::string rest = quotation;
  while (!rest.empty()) {
    const std::size_t gap = rest.find(" ... ");
    const Words words = words_of(rest.substr(0, gap));
    rest = gap == rest.npos ? "" : rest.substr(gap + 5);
    if (words.size() < 4) missing.push_back("fewer than four words");
    for (std::size_t i = 0; i + 4 <= words.size(); ++i) {
      const auto four = std::span(words).subspan(i, 4);
      if (!text.contains(number_of(four)))
        missing.push_back(fmt::format("{}", fmt::join(four, " ")));
    }
  }
  return missing;
}

TEST_CASE("every quotation stands in the paper's text") {
  const std::map<Paper, std::set<std::string>> texts = {{Paper::quoka, numbers_of("quoka")},
                                                        {Paper::quest, numbers_of("quest")},
                                                        {Paper::specattn, numbers_of("specattn")}};
  for (const auto& [paper, text] : texts) REQUIRE(text.size() > 900);
  Words without;
  for (const Item& item : items()) {
    INFO(item.id);
    if (item.words.empty()) {
      without.push_back(item.id);
      continue;
    }
    CHECK(not_said(item.words, texts.at(item.paper)) == Words{});
  }
  CHECK(without == Words{"quest-recall"});  // a figure of the printed paper; the slides lack it
}

TEST_CASE("a quotation that says more, less or something else is noticed") {
  const std::set<std::string> text = numbers_of("quest");
  CHECK(not_said("Quest can closely match the performance of the full cache model", text).empty());
  CHECK(not_said("Quest can closely match the accuracy of the full cache model", text).size() == 4);
  CHECK(not_said("Quest can closely match ... the full cache model", text).empty());
  CHECK(not_said("Quest ... the full cache model", text) == Words{"fewer than four words"});
  CHECK(not_said("stays within three points of full attention", numbers_of("quoka")).size() == 4);
}

}  // namespace kvscope::papers::words_test
