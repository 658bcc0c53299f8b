#include "core/model/nfc.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMaxDecomposed = 8;  // no character of Unicode comes apart into more than 4

void check(utf8proc_ssize_t result) {
  if (result < 0) throw std::runtime_error(utf8proc_errmsg(result));
}

void decompose(char32_t c, std::vector<std::int32_t>& out) {
  std::array<utf8proc_int32_t, kMaxDecomposed> parts;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                                     parts.size(), options, nullptr);
  check(n);
  out.insert(out.end(), parts.begin(), parts.begin() + n);
}

int combining_class(std::int32_t c) {
  return utf8proc_get_property(c)->combining_class;
}

// Marks between two starters (characters of class 0) are ordered by class. utf8proc's own ordering
// takes quadratic time for a long row of marks.
void order_marks(std::vector<std::int32_t>& text) {
  const auto is_starter = [](std::int32_t c) { return combining_class(c) == 0; };
  for (auto begin = text.begin(); begin != text.end();) {
    begin = std::find_if_not(begin, text.end(), is_starter);
    const auto end = std::find_if(begin, text.end(), is_starter);
    std::stable_sort(begin, end, [](std::int32_t a, std::int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
}

void compose(std::vector<std::int32_t>& text) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t n =
      utf8proc_normalize_utf32(text.data(), static_cast<utf8proc_ssize_t>(text.size()), options);
  check(n);
  text.resize(static_cast<std::size_t>(n));
}

}  // namespace

std::optional<std::string> nfc(std::string_view text) {
  // 0xcc is the first byte of U+0300; everything below is its own NFC and composes with nothing
  // before it.
  const bool can_change = std::any_of(text.begin(), text.end(),
                                      [](char c) { return static_cast<unsigned char>(c) >= 0xcc; });
  if (!can_change) return std::nullopt;
  std::vector<std::int32_t> characters;
  characters.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_char_at(text, pos);
    decompose(c.code_point, characters);
    pos += c.size;
  }
  order_marks(characters);
  compose(characters);
  std::string out;
  out.reserve(text.size());
  for (const std::int32_t c : characters) append_utf8(out, static_cast<char32_t>(c));
  return out;
}

}  // namespace kvscope
