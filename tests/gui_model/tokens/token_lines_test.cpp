// Running text: the order of tokens in a line, and tokens found where they lie.
#include "gui/model/tokens/token_lines.hpp"

#include <catch2/catch_test_macros.hpp>

#include "core/base/error.hpp"
#include "tests/gui_model/trace_files.hpp"

namespace kvscope::gui::test::token_lines_test {

struct Texts {
  TempFolder folder;
  Cache cache{1 << 20};
  ThreadPool pool{1};
  std::stop_source stop;

  /// The texts of a trace whose tokens have these bytes, which are padded to 24 with "x".
  TokenTexts of(std::vector<std::string> tokens) {
    SyntheticTrace trace = make_trace({});
    tokens.resize(24, "x");
    trace.texts = tokens;
    trace.info.token_text_capacity = 4096;
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

TEST_CASE("a stopped reading ends") {
  Texts t;
  t.stop.request_stop();
  CHECK_THROWS_AS(t.of({"a"}), Interrupted);
}

}  // namespace kvscope::gui::test::token_lines_test
