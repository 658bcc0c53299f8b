// Running text: lines against a naive breaker, tokens found where they lie, whitespace visible.
#include "gui/model/tokens/token_lines.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "core/base/error.hpp"
#include "tests/gui_model/trace_files.hpp"

namespace kvscope::gui::test::token_lines_test {

using Catch::Approx;

struct Texts {
  TempFolder folder;
  Cache cache{1 << 20};
  ThreadPool pool{1};
  std::stop_source stop;

  /// The texts of a trace whose tokens have these bytes, which are padded to 24 with "x".
  TokenTexts of(std::vector<std::string> tokens, bool with_text = true) {
    Plan plan;
    plan.with_text = with_text;
    SyntheticTrace trace = make_trace(plan);
    tokens.resize(24, "x");
    if (with_text) trace.texts = tokens;
    trace.info.token_text_capacity = with_text ? 4096 : 0;
    if (!with_text) trace.texts.assign(24, "");
    JobContext job{pool, stop.get_token(), {}};
    return TokenTexts::of(*open_document(write_trace(folder / "t.h5", trace), cache), job);
  }
};

/// Letters are 10 wide, "i" 4, others 7.
Advances advances() {
  Advances table;
  for (char32_t c = 'a'; c <= 'z'; ++c) table.known[c] = 10.0f;
  table.known['i'] = 4.0f;
  table.other = 7.0f;
  return table;
}

TEST_CASE("right-to-left tokens stand in their order in a line, joined over split characters") {
  Texts t;
  // "a", two Hebrew letters in two tokens, a space and a third one, "b"
  const TokenTexts texts = t.of({"a ", "\xd7\xa9", "\xd7\x9c", " \xd7\x9d", " b"});
  CHECK(texts.is_right_to_left(1));
  CHECK_FALSE(texts.is_right_to_left(4));
  CHECK(texts.text(3) == "\xd7\x9d ");  // its space stands at its right
  CHECK(texts.begins_word(3));
  const TokenLines lines = break_lines(texts, advances(), {1000.0f, 1.0f});
  CHECK(lines.x[0] < lines.x[3]);
  CHECK(lines.x[3] < lines.x[2]);
  CHECK(lines.x[2] < lines.x[1]);
  CHECK(lines.x[1] < lines.x[4]);
  for (Index pos = 0; pos < 5; ++pos) {
    CHECK(lines.token_at(0, lines.x[static_cast<std::size_t>(pos)] + 1.0f) == pos);
  }
  // seen and alef whose bytes four tokens share: joined all the same
  const TokenTexts split = t.of({"\xd8", "\xb3", "\xd8", "\xa7"});
  CHECK(split.text(0) == "\xef\xba\xb3");  // seen at the beginning
  CHECK(split.text(1).empty());
  CHECK(split.text(2) == "\xef\xba\x8e");  // alef at the end
}

TEST_CASE("texts show spaces that cannot be counted otherwise, and where lines end") {
  Texts t;
  const TokenTexts texts = t.of({" the", " ", "   ", "a  b", "end.\n", "\n\n", "\xe4\xb8"});
  CHECK(texts.size() == 24);
  CHECK(texts.text(0) == " the");
  CHECK(texts.text(1) == "·");
  CHECK(texts.text(2) == "···");
  CHECK(texts.text(3) == "a··b");
  CHECK(texts.text(4) == "end.↵");
  CHECK(texts.text(5) == "↵↵");
  CHECK(texts.text(6) == "<E4><B8>");
  CHECK(texts.ends_line(4));
  CHECK(texts.ends_line(5));
  CHECK_FALSE(texts.ends_line(0));
  CHECK(texts.alphabet().find("↵") != std::string::npos);
  CHECK(texts.alphabet().find("the") == std::string::npos);  // sorted, each once
  CHECK(characters_of(texts.alphabet()).size() == characters_of(" ·.48<>BEabdehnt↵x").size());
}

TEST_CASE("without text, tokens show as ids") {
  Texts t;
  const TokenTexts texts = t.of({}, /*with_text=*/false);
  CHECK(texts.text(0).starts_with("id "));
  CHECK_FALSE(texts.ends_line(0));
}

TEST_CASE("characters of any length, and bytes that are none") {
  CHECK(characters_of("aé中😀") == std::vector<char32_t>{U'a', U'é', U'中', U'😀'});
  CHECK(characters_of("\xffz") == std::vector<char32_t>{0xfffd, U'z'});
  CHECK(characters_of("\xe4\xb8") == std::vector<char32_t>{0xfffd});
  CHECK(advances().width("ai?") == Approx(21.0));
}

TEST_CASE("lines break where the next token would not fit, and after line breaks") {
  Texts t;
  const TokenTexts texts = t.of({"aaa", "bb", "c", "d\n", "e", "ffffffffffffffffff", "g"});
  const TokenLines lines = break_lines(texts, advances(), {62.0f, 1.0f});
  // aaa is 32 wide, bb 22: 54; c would end at 66
  REQUIRE(lines.n_lines() >= 6);
  CHECK(lines.line(0) == TokenRange{0, 2});
  CHECK(lines.line(1) == TokenRange{2, 4});  // "d\n" ends its line
  CHECK(lines.line(2) == TokenRange{4, 5});
  CHECK(lines.line(3) == TokenRange{5, 6});  // wider than a line: alone
  CHECK(lines.x[1] == Approx(32.0));
  CHECK(lines.x[2] == 0.0f);
  CHECK(lines.line_of(3) == 1);
  CHECK(lines.line_of(0) == 0);
}

TEST_CASE("lines of random text: every token once, none beyond the width, none too early") {
  std::mt19937 random(3);
  Texts t;
  for (int round = 0; round < 30; ++round) {
    std::vector<std::string> tokens(24);
    for (std::string& token : tokens) {
      const auto n = random() % 5;
      for (std::size_t i = 0; i < n; ++i) token += "abi ?"[random() % 5];
      if (random() % 6 == 0) token += "\n";
    }
    const TokenTexts texts = t.of(tokens);
    const float width = 30.0f + static_cast<float>(random() % 100);
    const TokenLines lines = break_lines(texts, advances(), {width, 1.5f});
    REQUIRE(lines.n_tokens() == 24);
    Index next = 0;
    for (Index i = 0; i < lines.n_lines(); ++i) {
      const TokenRange line = lines.line(i);
      REQUIRE(line.begin == next);
      REQUIRE(line.size() > 0);
      next = line.end;
      float x = 0.0f;
      for (Index pos = line.begin; pos < line.end; ++pos) {
        const auto at = static_cast<std::size_t>(pos);
        CHECK(lines.x[at] == Approx(x));
        const float sliver = texts.text(pos).empty() ? 3.0f : 0.0f;  // to be pointed at
        CHECK(lines.widths[at] == Approx(advances().width(texts.text(pos)) + 3.0f + sliver));
        x += lines.widths[at];
        CHECK(lines.line_of(pos) == i);
        if (pos + 1 < line.end) CHECK_FALSE(texts.ends_line(pos));
      }
      CHECK((line.size() == 1 || x <= width));
      const bool by_text = texts.ends_line(line.end - 1);
      if (line.end == 24 || by_text) continue;
      // What would still have fitted is the beginning of a word that would not have.
      float more = x;
      Index pos = line.end;
      while (pos < 24 && more + lines.widths[pos] <= width) {
        more += lines.widths[pos];
        ++pos;
        if (pos < 24) CHECK_FALSE(texts.begins_word(pos));
      }
      CHECK(pos < 24);
      if (pos > line.end) {
        CHECK(texts.begins_word(line.end));
        CHECK(x > 0.66f * width);
      }
    }
    CHECK(next == 24);
  }
}

TEST_CASE("a word of several tokens goes to the next line as one, if it begins late") {
  Texts t;
  const TokenTexts texts = t.of({"aaa", " b", "c", "d", " e", "aaaaaaaa", "bb"});
  // "aaa" ends at 30 and " b" would at 47: the word " bcd" has a line of its own.
  const TokenLines narrow = break_lines(texts, advances(), {44.0f, 0.0f});
  CHECK(narrow.line(0) == TokenRange{0, 1});
  CHECK(narrow.line(1) == TokenRange{1, 4});
  // Here "c" would still fit at 47, but "d" not: 30 of 65 is not late, 30 of 44 above was no
  // choice.
  const TokenLines early = break_lines(texts, advances(), {65.0f, 0.0f});
  CHECK(early.line(0) == TokenRange{0, 3});
  const TokenTexts late = t.of({"aaaa", " b", "c", "d"});
  const TokenLines moved = break_lines(late, advances(), {59.0f, 0.0f});
  CHECK(moved.line(0) == TokenRange{0, 1});  // " b" begins at 40 of 59
  CHECK(moved.line(1).begin == 1);
  CHECK(moved.x[1] == 0.0f);
  CHECK(moved.x[2] == Approx(17.0));
  CHECK(moved.x[3] == Approx(27.0));
}

TEST_CASE("the token under the mouse") {
  Texts t;
  const TokenTexts texts = t.of({"aaa", "bb", "c"});
  const TokenLines lines = break_lines(texts, advances(), {62.0f, 1.0f});
  CHECK(lines.token_at(0, 0.0f) == 0);
  CHECK(lines.token_at(0, 31.9f) == 0);
  CHECK(lines.token_at(0, 32.1f) == 1);
  CHECK(lines.token_at(0, 60.0f) == -1);  // beside the text
  CHECK(lines.token_at(0, -1.0f) == -1);
  CHECK(lines.token_at(-1, 5.0f) == -1);
  CHECK(lines.token_at(lines.n_lines(), 5.0f) == -1);
}

TEST_CASE("a stopped reading ends") {
  Texts t;
  t.stop.request_stop();
  CHECK_THROWS_AS(t.of({"a"}), Interrupted);
}

}  // namespace kvscope::gui::test::token_lines_test
