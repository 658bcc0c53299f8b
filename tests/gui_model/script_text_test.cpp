// Characters that tokens split, and scripts that run from right to left.
#include "gui/model/tokens/script_text.hpp"
#include "gui/model/tokens/script_names.hpp"

#include <catch2/catch_test_macros.hpp>

#include "gui/model/tokens/token_lines.hpp"
#include "gui/model/tokens/token_text.hpp"
#include "tests/gui_model/job_context.hpp"
#include "tests/gui_model/trace_files.hpp"

namespace kvscope::gui::test::script_text_test {

using Words = std::vector<std::string>;

TEST_CASE("a character that tokens split stands whole in the one in which it begins") {
  CHECK(whole_characters({"a\xd7", "\x90", "b"}) == Words{"a\xd7\x90", "", "b"});
  CHECK(whole_characters({"\xe4\xbd", "\xa0\xe5\xa5", "\xbd!"}) ==
        Words{"\xe4\xbd\xa0", "\xe5\xa5\xbd", "!"});
  CHECK(whole_characters({"\xf0", "\x9f", "\x98", "\x80"}) ==
        Words{"\xf0\x9f\x98\x80", "", "", ""});
  // What never becomes a character stays where it is.
  CHECK(whole_characters({"\xd7", "x"}) == Words{"\xd7", "x"});
  CHECK(whole_characters({"x", "\xf0\x9f"}) == Words{"x", "\xf0\x9f"});
  CHECK(whole_characters({"\x90", "\xe4\xbd", "y\xa0"}) == Words{"\x90", "\xe4\xbd", "y\xa0"});
  CHECK(whole_characters({}).empty());
}

TEST_CASE("Hebrew is turned around, Arabic joined, and everything else stays") {
  CHECK(runs_right_to_left(" \xd7\xa9"));
  CHECK_FALSE(runs_right_to_left("abc \xd7\xa9"));
  CHECK_FALSE(runs_right_to_left("12 ."));
  CHECK(drawn_order(U"\u05e9\u05dc\u05d5\u05dd") == U"\u05dd\u05d5\u05dc\u05e9");
  CHECK(drawn_order(U"a \u05e9\u05dc b") == U"a \u05dc\u05e9 b");
  CHECK(drawn_order(U"\u05e9\u05dc 12") == U"\u05dc\u05e9 12");
  CHECK(drawn_order(U"plain") == U"plain");
  // salam: seen at its beginning, lam in the middle, alef at the end, meem alone
  CHECK(joined_letters(U"\u0633\u0644\u0627\u0645", 0, 0) == U"\ufeb3\ufee0\ufe8e\ufee1");
  // the same word in two tokens
  CHECK(joined_letters(U"\u0633\u0644", 0, U'\u0627') == U"\ufeb3\ufee0");
  CHECK(joined_letters(U"\u0627\u0645", U'\u0644', 0) == U"\ufe8e\ufee1");
  CHECK(joined_letters(U"abc", 0, 0) == U"abc");
  // Persian: peh at its beginning, alef at the end; yeh, alone between letters that join nothing
  CHECK(joined_letters(U"\u067e\u0627", 0, 0) == U"\ufb58\ufe8e");
  CHECK(joined_letters(U"\u06cc", U'\u0627', U'\u0627') == U"\ufbfe");
}

TEST_CASE("what of a text is not drawn as it is written is one sentence") {
  const auto none = [](char32_t) { return false; };
  CHECK(remark_on_scripts("plain, Жизнь, \u6ce8, \u0e44\u0e17\u0e22", none).empty());
  CHECK(remark_on_scripts("\u0939\u093f", none) ==
        "Devanagari: each letter is drawn by itself, not joined with its neighbours.");
  const std::string both =
      remark_on_scripts("\ud55c\uad6d\u0e44\ue123", [](char32_t c) { return c != U'\u0e44'; });
  CHECK(both.starts_with("No installed font has 3 characters of this text (Korean, other)"));
  CHECK(script_of(U'\u0e44') == "Thai");
  CHECK(script_of(U'a').empty());
}

}  // namespace kvscope::gui::test::script_text_test
