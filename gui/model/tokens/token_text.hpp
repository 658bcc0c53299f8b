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

/// Positions of tokens, ascending, in which an occurrence of `needle` in the running text begins;
/// letters of ASCII match in either case. Empty for an empty needle.
std::vector<std::size_t> find_text(const std::vector<std::string>& token_bytes,
                                   std::string_view needle);

/// How many tokens the occurrence of `needle` takes that begins in this one; 1 where none does.
std::size_t n_tokens_of(const std::vector<std::string>& token_bytes, std::size_t begin,
                        std::string_view needle);

}  // namespace kvscope::gui
