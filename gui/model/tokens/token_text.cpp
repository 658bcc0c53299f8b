#include "gui/model/tokens/token_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "core/base/utf8.hpp"

namespace kvscope::gui {

namespace {

/// Characters beyond ASCII that draw nothing, break the line or turn its direction.
bool is_invisible(char32_t c) {
  return (c >= 0x80 && c <= 0x9f) || c == 0xad || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// Characters from `first_far` on are written as numbers.
std::string written(std::string_view bytes, char32_t first_far) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t n = well_formed_size(bytes, i);
    const auto byte = static_cast<std::uint8_t>(bytes[i]);
    if (n == 1 && byte == '\n') {
      text += "\u21b5";
    } else if (n == 1 && byte == '\t') {
      text += "\u2192";
    } else if (n == 0 || (n == 1 && (byte < 0x20 || byte == 0x7f))) {
      text += fmt::format("<{:02X}>", byte);
    } else if (const char32_t c = utf8_char_at(bytes, i).code_point;
               is_invisible(c) || c >= first_far) {
      text += fmt::format("<U+{:04X}>", static_cast<std::uint32_t>(c));
    } else {
      text += bytes.substr(i, n);
    }
    i += std::max<std::size_t>(1, n);
  }
  return text;
}

}  // namespace

std::string printable(std::string_view bytes) {
  return written(bytes, 0x110000);
}

std::string drawable(std::string_view bytes) {
  return written(bytes, 0x10000);
}

FoundTokens find_text(const std::vector<std::string>& token_bytes, std::string_view needle) {
  FoundTokens found;
  if (needle.empty()) return found;
  std::string text;
  std::vector<std::size_t> begin;
  for (const auto& bytes : token_bytes) {
    begin.push_back(text.size());
    text += bytes;
  }
  const auto token_at = [&](std::size_t offset) {
    return static_cast<std::size_t>(std::ranges::upper_bound(begin, offset) - begin.begin() - 1);
  };
  const auto same = [](char a, char b) { return lower(a) == lower(b); };
  for (auto at = text.cbegin();; ++at) {
    at = std::search(at, text.cend(), needle.begin(), needle.end(), same);
    if (at == text.cend()) return found;
    const auto offset = static_cast<std::size_t>(at - text.cbegin());
    const std::size_t first = token_at(offset);
    if (!found.positions.empty() && found.positions.back() == first) continue;
    found.positions.push_back(first);
    found.ends.push_back(token_at(offset + needle.size() - 1) + 1);
    for (std::size_t pos = first; pos < found.ends.back(); ++pos) {
      if (found.covered.empty() || found.covered.back() < pos) found.covered.push_back(pos);
    }
  }
}

}  // namespace kvscope::gui
