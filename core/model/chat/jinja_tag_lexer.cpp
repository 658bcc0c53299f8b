#include "core/model/chat/jinja_tag_lexer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/utf8.hpp"

namespace kvscope::jinja {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

}  // namespace

TagLexer::TagLexer(std::string_view source) {
  source_.reserve(source.size());  // every line break becomes \n, as Jinja reads them
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      source_ += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      source_ += source[i];
    }
  }
  if (source_.ends_with('\n')) source_.pop_back();  // Jinja drops one line break at the end
}

void TagLexer::refuse(const std::string& what) const {
  throw FormatError("line {}: {}", line_, what);
}
void TagLexer::go_to(std::size_t at) {
  line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                       source_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  at_ = at;
}

char TagLexer::read_tag(bool is_variable) {
  const std::string_view close = is_variable ? "}}" : "%}";
  std::string open;  // brackets that are not closed yet
  while (true) {
    while (at_ < source_.size() && is_blank(source_[at_])) go_to(at_ + 1);
    if (at_ >= source_.size()) refuse(fmt::format("a tag does not end: expected {}", close));
    const char c = source_[at_];
    if (open.empty() && (has(close, at_) || ((c == '-' || c == '+') && has(close, at_ + 1)))) {
      add(is_variable ? TokenKind::variable_end : TokenKind::block_end, "");
      const char sign = has(close, at_) ? '\0' : c;
      if (sign != '\0') go_to(at_ + 1);
      return sign;
    }
    if (is_digit(c))
      number();
    else if (begins_name(c))
      name();
    else if (c == '"' || c == '\'')
      string(c);
    else
      sign(open);
  }
}

void TagLexer::name() {
  std::size_t end = at_;
  while (end < source_.size() && (begins_name(source_[end]) || is_digit(source_[end]))) ++end;
  add(TokenKind::name, source_.substr(at_, end - at_));
  go_to(end);
}

void TagLexer::number() {
  std::size_t end = at_;
  const auto digits = [&] {
    while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) ++end;
  };
  digits();
  bool is_real = false;
  if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
    is_real = true;
    ++end;
    digits();
  }
  if (end + 1 < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
    const std::size_t sign = end + (source_[end + 1] == '-' || source_[end + 1] == '+' ? 2 : 1);
    if (sign < source_.size() && is_digit(source_[sign])) {
      is_real = true;
      end = sign;
      digits();
    }
  }
  std::string text = source_.substr(at_, end - at_);
  std::erase(text, '_');
  add(is_real ? TokenKind::real : TokenKind::integer, std::move(text));
  go_to(end);
}

char32_t TagLexer::hex(std::size_t at, std::size_t n) const {
  char32_t point = 0;
  for (std::size_t i = at; i < at + n; ++i) {
    const char c = i < source_.size() ? source_[i] : '\0';
    const bool is_letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (!is_digit(c) && !is_letter) refuse("an escape in a string lacks hexadecimal digits");
    point = point * 16 + static_cast<char32_t>(is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
  }
  if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
    refuse("an escape in a string names no character");
  return point;
}

void TagLexer::string(char quote_sign) {
  std::string text;
  std::size_t at = at_ + 1;
  for (;; ++at) {
    if (at >= source_.size()) refuse("a string does not end");
    if (source_[at] == quote_sign) break;
    if (source_[at] != '\\' || at + 1 >= source_.size()) {
      text += source_[at];
      continue;
    }
    constexpr std::string_view kEscapes = "ntrabfv0\\'\"";
    constexpr std::string_view kMeaning("\n\t\r\a\b\f\v\0\\'\"", 11);
    const char c = source_[++at];
    if (const std::size_t i = kEscapes.find(c); i != std::string_view::npos) {
      text += kMeaning[i];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      append_utf8(text, hex(at + 1, n));
      at += n;
    } else if (c != '\n') {  // a line break behind a backslash is none
      text += '\\';
      text += c;
    }
  }
  add(TokenKind::string, std::move(text));
  go_to(at + 1);
}

void TagLexer::sign(std::string& open) {
  constexpr std::array<std::string_view, 26> kSigns = {
      "==", "!=", "<=", ">=", "//", "**", "<", ">", "+", "-", "*", "/", "%",
      "~",  "|",  "=",  "(",  ")",  "[",  "]", "{", "}", ":", ",", ".", ";"};
  for (const std::string_view sign : kSigns) {
    if (!has(sign, at_)) continue;
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (kOpen.find(sign) != std::string_view::npos) open += sign;
    if (const std::size_t i = kClose.find(sign); i != std::string_view::npos) {
      if (open.empty() || open.back() != kOpen[i]) refuse(fmt::format("unexpected {}", sign));
      open.pop_back();
    }
    add(TokenKind::sign, std::string(sign));
    return go_to(at_ + sign.size());
  }
  refuse(fmt::format("unexpected {}", quote(std::string_view(source_).substr(
                                          at_, utf8_char_at(source_, at_).size))));
}

}  // namespace kvscope::jinja
