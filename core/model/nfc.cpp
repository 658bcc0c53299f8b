#include "core/model/nfc.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMaxDecomposed = 24;  // no character comes apart into more than 18 (U+FDFA)

enum class Form { canonical, compatible };

void check(utf8proc_ssize_t result) {
  if (result < 0) throw std::runtime_error(utf8proc_errmsg(result));
}

void decompose(char32_t c, Form form, std::vector<std::int32_t>& out) {
  std::array<utf8proc_int32_t, kMaxDecomposed> parts;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (form == Form::compatible ? UTF8PROC_COMPAT : 0));
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

/// `first` is the first byte of the first character that can change.
std::optional<std::string> normalized(std::string_view text, Form form, unsigned char first) {
  const bool can_change = std::any_of(
      text.begin(), text.end(), [&](char c) { return static_cast<unsigned char>(c) >= first; });
  if (!can_change) return std::nullopt;
  std::vector<std::int32_t> characters;
  characters.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_char_at(text, pos);
    decompose(c.code_point, form, characters);
    pos += c.size;
  }
  order_marks(characters);
  compose(characters);
  std::string out;
  out.reserve(text.size());
  for (const std::int32_t c : characters) append_utf8(out, static_cast<char32_t>(c));
  return out;
}

}  // namespace

std::optional<std::string> nfc(std::string_view text) {
  // 0xcc begins U+0300; everything below is its own NFC and composes with nothing before it.
  return normalized(text, Form::canonical, 0xcc);
}

std::optional<std::string> nfkc(std::string_view text) {
  return normalized(text, Form::compatible, 0xc2);  // U+00A0 is a blank
}

}  // namespace kvscope
