// UTF-8 by hand: checking, stepping through characters, and the white space that tokenizers strip.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvscope {

/// Offset of the first byte that does not belong to a well-formed character (overlong forms,
/// surrogates and code points over 10FFFF are not well-formed); empty if all of `text` is UTF-8.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

/// Bytes of the well-formed character at `pos`; 0 if there is none.
std::size_t well_formed_size(std::string_view text, std::size_t pos);

/// One character and how many bytes it takes.
struct Utf8Char {
  char32_t code_point = 0;
  std::size_t size = 0;
};

/// The character that begins at `pos` of well-formed text; pos < text.size().
Utf8Char utf8_char_at(std::string_view text, std::size_t pos);

/// Where the character that ends at `end` begins; 0 < end <= text.size(), well-formed text.
std::size_t utf8_char_before(std::string_view text, std::size_t end);

/// Characters, not bytes; what is not UTF-8 counts some number of them.
std::size_t count_code_points(std::string_view text);

/// Appends one code point.
void append_utf8(std::string& out, char32_t code_point);

/// Unicode's White_Space property.
bool is_white_space(char32_t code_point);

}  // namespace kvscope
