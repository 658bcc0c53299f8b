#include "core/model/byte_level.hpp"

#include <array>

#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

// Printable Latin-1 stands for itself; the other 68 bytes take the code points from 256 on, in
// order.
struct Alphabet {
  std::array<char32_t, 256> char_from_byte{};
  std::array<std::int16_t, 256 + 68> byte_from_char{};

  constexpr Alphabet() {
    byte_from_char.fill(-1);
    char32_t next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool is_printable =
          (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      char_from_byte[byte] = is_printable ? static_cast<char32_t>(byte) : next++;
      byte_from_char[char_from_byte[byte]] = static_cast<std::int16_t>(byte);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

std::string byte_level_char(std::uint8_t byte) {
  std::string out;
  append_utf8(out, kAlphabet.char_from_byte[byte]);
  return out;
}

std::optional<std::string> bytes_from_byte_level(std::string_view token) {
  std::string bytes;
  for (std::size_t pos = 0; pos < token.size();) {
    const Utf8Char c = utf8_char_at(token, pos);
    if (c.code_point >= kAlphabet.byte_from_char.size()) return std::nullopt;
    const std::int16_t byte = kAlphabet.byte_from_char[c.code_point];
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    pos += c.size;
  }
  return bytes;
}

}  // namespace kvscope
