// Text from outside, made safe for where it goes: every name in a file may be hostile, and each
// output has its own signs that must not get through.
//
// clean_text() is the one place where bytes become text that every format can carry; the other
// functions clean first and then escape what their format gives a meaning to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvscope {

/// `text` as UTF-8 that any format can carry: bytes that are no well-formed character (overlong
/// forms and surrogates included), noncharacters (U+FFFE, U+FDD0, ...) and control characters other
/// than line feed and tab become U+FFFD; CR LF and CR become line feeds.
std::string clean_text(std::string_view text);

/// For the content and the attribute values of SVG, HTML and other XML.
std::string xml_escape(std::string_view text);

/// For one cell or one line of Markdown; line breaks become blanks.
std::string markdown_escape(std::string_view text);

/// For LaTeX outside of formulas, in any engine: signs with a meaning are escaped, line breaks
/// become blanks, "--" stays two signs, characters that pdfTeX has no sign for show as U+XXXX there
/// and as themselves in LuaTeX and XeTeX; what nobody sees is left out.
std::string tex_escape(std::string_view text);

/// One character (UTF-8) as tex_escape writes it; with `in_math` as it stands between dollar signs.
std::string tex_character(std::string_view character, bool in_math);

/// For a terminal: line feeds, tabs and all that can be seen stay; other control characters and
/// hidden signs become \u001b and the like (which JSON reads back), bytes that are no UTF-8 \xff.
std::string terminal_text(std::string_view text);

/// At most about `most` bytes of `text`: its beginning and end with " ... " between them, cut
/// between characters.
std::string shortened(std::string_view text, std::size_t most);

/// A message that a person reads: each word of at most some 300 bytes, all of at most some 4,000.
std::string short_message(std::string_view message);

/// "a, b, c and 97 more": the first `most` of `names`, each shortened, in quotes if it is odd.
std::string some_of(const std::vector<std::string>& names, std::size_t most = 12);

}  // namespace kvscope
