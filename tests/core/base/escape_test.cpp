// Hostile text and what becomes of it on its way into each format.
#include "core/base/escape.hpp"

#include <cstdint>

#include "core/base/csv_text.hpp"
#include "core/base/utf8.hpp"
#include "tests/support/test.hpp"

namespace kvscope::escape_test {

TEST_CASE("text from outside becomes UTF-8 that any format carries") {
  CHECK(clean_text("plain α 中 😀\n\t") == "plain α 中 😀\n\t");
  CHECK(clean_text("a\r\nb\rc\n") == "a\nb\nc\n");
  const std::string mark = "\xEF\xBF\xBD";
  CHECK(clean_text("\xff") == mark);
  CHECK(clean_text("\xc0\xaf") == mark + mark);             // overlong slash
  CHECK(clean_text("\xed\xa0\x80") == mark + mark + mark);  // surrogate
  CHECK(clean_text("\xf4\x90\x80\x80").size() == 4 * 3);    // over 10FFFF
  CHECK(clean_text("\xef\xbf\xbe|\xef\xbf\xbf") == mark + "|" + mark);
  CHECK(clean_text("\xf0\x9f\xbf\xbe") == mark);        // U+1FFFE
  CHECK(clean_text("a\xe2\x82") == "a" + mark + mark);  // cut off
  CHECK(clean_text(std::string_view("a\0b\x1b[31m\x7f", 9)) ==
        "a" + mark + "b" + mark + "[31m" + mark);
  CHECK(clean_text("\xc2\x9b") == mark);  // CSI of 8 bits
}

TEST_CASE("TeX sees text, never commands") {
  CHECK(tex_escape("\\input{/etc/passwd}") == "\\textbackslash{}input\\{/etc/passwd\\}");
  CHECK(tex_escape("\\^^69") == "\\textbackslash{}\\textasciicircum{}\\textasciicircum{}69");
  CHECK(tex_escape("50% of $x_1$ & {y} #2 ~ ^ \\ <a> ± 1") ==
        "50\\% of \\$x\\_1\\$ \\& \\{y\\} \\#2 \\textasciitilde{} \\textasciicircum{} "
        "\\textbackslash{} \\textless{}a\\textgreater{} $\\pm$ 1");
  CHECK(tex_escape("a$b$ 5%_#&~") == "a\\$b\\$ 5\\%\\_\\#\\&\\textasciitilde{}");
  CHECK(tex_escape("[x]*") == "{[}x{]}*");
  CHECK(tex_escape("--x ---- ?` ,, ''") == "-{}-x -{}-{}-{}- ?{}` ,{}, '{}'");
  CHECK(tex_escape("two\nlines\n") == "two lines ");
  CHECK(tex_escape("é ± ≤ –") == "é $\\pm$ $\\le$ --");
  CHECK(tex_escape("😀") == "\\ifdefined\\Umathcode 😀\\else U+1F600\\fi{}");
  CHECK(tex_escape("a\u202e\u200bb") == "ab");
  CHECK(tex_escape("\x1b\xff") == "??");
  CHECK(tex_character("\\", /*in_math=*/true) == "\\backslash ");
  CHECK(tex_character("^", /*in_math=*/true) == "\\hat{}");
  CHECK(tex_character("\n", /*in_math=*/true) == "\\ ");
}

TEST_CASE("XML, HTML and Markdown get no markup from text") {
  CHECK(xml_escape("<a b=\"c\">&'\n") == "&lt;a b=&quot;c&quot;&gt;&amp;&#39; ");
  CHECK(markdown_escape("a|b <script> [x](y) `c`\n*d*") ==
        "a\\|b &lt;script\\> \\[x\\](y) \\`c\\` \\*d\\*");
}

TEST_CASE("terminals get nothing that moves or hides") {
  CHECK(terminal_text("a\nb\tα中😀") == "a\nb\tα中😀");
  CHECK(terminal_text("\x1b]0;title\x07\x1b[2J\r") == "\\u001b]0;title\\u0007\\u001b[2J\\u000d");
  CHECK(terminal_text("\xc2\x9b") == "\\u009b");
  CHECK(terminal_text("\xff\u202e") == "\\xff\\u202e");
}

TEST_CASE("long words and long messages are cut between characters") {
  CHECK(shortened("abc", 10) == "abc");
  const std::string word = shortened(std::string(10000, 'x'), 100);
  CHECK(word.size() <= 100);
  CHECK(word.size() >= 98);
  CHECK(word.find(" ... ") != std::string::npos);
  std::string wide;
  for (int i = 0; i < 5000; ++i) wide += "中";
  CHECK_FALSE(first_invalid_utf8(shortened(wide, 101)));
  CHECK(short_message("see " + wide + " there").size() < 320);
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "word ";
  CHECK(short_message(many).size() <= 4000);
  CHECK(short_message("a short one: two  blanks\n") == "a short one: two  blanks\n");
}

/// A field without the quotes around it (RFC 4180).
std::string unquoted(const std::string& field) {
  if (!field.starts_with('"')) return field;
  std::string out;
  for (std::size_t i = 1; i + 1 < field.size(); ++i) {
    out += field[i];
    if (field[i] == '"') ++i;
  }
  return out;
}

TEST_CASE("CSV cells are no formulas, and read back as they were") {
  for (const char* cell :
       {"=1+1", "@sum", "+cmd|' /C calc'!A0", "-2+3", "\tx", "'=x", "'''=x", "=\"a,b\""}) {
    CHECK(csv_field(cell).find('\'') != std::string::npos);
    CHECK(csv_text_of(unquoted(csv_field(cell))) == cell);
  }
  for (const char* cell : {"-", "-5", "+1.5", "-1e-3", "quest", "'", "a=b", "'x", "", "-inf"}) {
    CHECK(csv_field(cell) == cell);
    CHECK(csv_text_of(cell) == cell);
  }
}

}  // namespace kvscope::escape_test
