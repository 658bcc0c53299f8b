// Tokens as people read them: bytes made printable, and found again by search.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvscope::gui {

/// The bytes of a token as valid UTF-8 on one line: line breaks as U+21B5, tabs as U+2192, other
/// control characters and bytes that are no whole character as <0A>, characters beyond ASCII that
/// draw nothing or turn the line around as <U+200B>. Spaces stay.
std::string printable(std::string_view bytes);
/// The same with emoji and other characters beyond the basic plane, which the window's letters do
/// not have, by their numbers: one would look like the other. <U+1F600>
std::string drawable(std::string_view bytes);

/// Occurrences of some text.
struct FoundTokens {
  std::vector<std::size_t> positions;  // tokens in which one begins, ascending
  std::vector<std::size_t> ends;       // [positions.size()] behind the last token of the first one
  std::vector<std::size_t> covered;    // all tokens of these, ascending
  std::size_t bytes() const { return sizeof *this + 3 * covered.size() * sizeof(std::size_t); }
};

/// Occurrences of `needle` in the running text; letters of ASCII match in either case. None of an
/// empty needle.
FoundTokens find_text(const std::vector<std::string>& token_bytes, std::string_view needle);

}  // namespace kvscope::gui
