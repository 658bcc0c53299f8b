#include "core/base/utf8.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace kvscope {

namespace {

std::uint8_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<std::uint8_t>(text[i]);
}

bool is_continuation(std::uint8_t byte) {
  return (byte & 0xc0) == 0x80;
}

}  // namespace

// Unicode 15, table 3-7.
std::size_t well_formed_size(std::string_view text, std::size_t pos) {
  const std::uint8_t first = byte_at(text, pos);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xc2 && first <= 0xdf   ? 2
                           : first >= 0xe0 && first <= 0xef ? 3
                           : first >= 0xf0 && first <= 0xf4 ? 4
                                                            : 0;
  if (size == 0 || size > text.size() - pos) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if (!is_continuation(byte_at(text, pos + i))) return 0;
  }
  const std::uint8_t second = byte_at(text, pos + 1);
  if (first == 0xe0 && second < 0xa0) return 0;   // overlong
  if (first == 0xed && second >= 0xa0) return 0;  // surrogates
  if (first == 0xf0 && second < 0x90) return 0;   // overlong
  if (first == 0xf4 && second >= 0x90) return 0;  // over 10FFFF
  return size;
}

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  std::size_t pos = 0;
  while (pos < text.size()) {
    // Eight ASCII bytes at a time.
    std::uint64_t word = 0;
    while (text.size() - pos >= 8) {
      std::memcpy(&word, text.data() + pos, 8);
      if ((word & 0x8080808080808080u) != 0) break;
      pos += 8;
    }
    if (pos == text.size()) break;
    const std::size_t size = well_formed_size(text, pos);
    if (size == 0) return pos;
    pos += size;
  }
  return std::nullopt;
}

Utf8Char utf8_char_at(std::string_view text, std::size_t pos) {
  const std::uint8_t first = byte_at(text, pos);
  if (first < 0x80) return {first, 1};
  const std::size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  char32_t code_point = first & (0x7fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    code_point = (code_point << 6) | (byte_at(text, pos + i) & 0x3fu);
  }
  return {code_point, size};
}

std::size_t utf8_char_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && is_continuation(byte_at(text, begin))) --begin;
  return begin;
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto tail = [&](int shift) {
    out += static_cast<char>(0x80 | ((code_point >> shift) & 0x3f));
  };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xc0 | (code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xe0 | (code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | (code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

}  // namespace kvscope
