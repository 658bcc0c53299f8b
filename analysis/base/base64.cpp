#include "analysis/base/base64.hpp"

#include <cstdint>

namespace kvscope {

namespace {

constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string text_from_bytes(std::span<const std::byte> bytes, LastGroup last) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < 3; ++j)
      word =
          word << 8U | (i + j < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i + j]) : 0U);
    for (int shift = 18; shift >= 0; shift -= 6) text += kDigits[word >> shift & 63U];
  }
  const std::size_t n_more = (3 - bytes.size() % 3) % 3;
  if (last == LastGroup::padded) text.replace(text.size() - n_more, n_more, n_more, '=');
  return text;
}

std::optional<std::vector<std::byte>> bytes_from_text(std::string_view text, std::size_t n) {
  if (n > text.size() || text.size() != (n + 2) / 3 * 4) return std::nullopt;
  std::vector<std::byte> bytes;
  bytes.reserve(n + 2);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t word = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const char* digit = std::char_traits<char>::find(kDigits, 64, text[i + j]);
      if (digit == nullptr) return std::nullopt;
      word = word << 6U | static_cast<std::uint32_t>(digit - kDigits);
    }
    for (int shift = 16; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<std::byte>(word >> shift));
  }
  bytes.resize(n);
  return bytes;
}

}  // namespace kvscope
