// Text of tokens as people read it where tokens are no whole characters, or the script runs from
// right to left, and a sentence on what is not drawn as it is written. No shaping engine: letters
// stand in reading order, Arabic ones joined.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace kvscope::gui {

/// The bytes of every token with characters that are split between tokens given to the one in which
/// they begin; the tokens of their other bytes are left without them. Bytes that make no character
/// stay where they are.
std::vector<std::string> whole_characters(const std::vector<std::string>& token_bytes);

/// Hebrew, Arabic and their kin.
bool is_right_to_left(char32_t c);
/// A token whose first letter is; digits, spaces and signs alone are not.
bool runs_right_to_left(std::string_view utf8);
/// Any letter at all.
bool has_letters(std::string_view utf8);

/// Arabic letters in the forms that they have between their neighbours; `before` and `after` stand
/// beside this text (0: nothing).
std::u32string joined_letters(std::u32string_view text, char32_t before, char32_t after);

/// As it is drawn from left to right: stretches of right-to-left letters turned around.
std::u32string drawn_order(std::u32string_view text);

/// What of these characters (UTF-8, each once) cannot be read as it should be, and what helps;
/// empty: nothing. `lacks`: no font has it.
std::string remark_on_scripts(std::string_view alphabet,
                              const std::function<bool(char32_t)>& lacks);

}  // namespace kvscope::gui
