#include "core/model/chat/jinja_lexer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

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
bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

std::string_view without_white_end(std::string_view text) {
  while (!text.empty()) {
    const std::size_t last = utf8_char_before(text, text.size());
    if (!is_white_space(utf8_char_at(text, last).code_point)) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
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

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const std::size_t tag = find_tag();
      add_text(tag);
      if (tag >= source_.size()) break;
      begin_tag(tag);
    }
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw FormatError(fmt::format("line {}: {}", line_, what));
  }
  bool has(std::string_view word, std::size_t at) const {
    return std::string_view(source_).substr(at).starts_with(word);
  }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  /// Moves on, counting lines.
  void go_to(std::size_t at) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    at_ = at;
  }

  /// Where the next tag begins; the source's length if there is none.
  std::size_t find_tag() const {
    for (std::size_t at = source_.find('{', at_); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      if (has("{{", at) || has("{%", at) || has("{#", at)) return at;
    }
    return source_.size();
  }

  /// The text up to a tag, without what the tag strips of it.
  void add_text(std::size_t tag) {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (tag < source_.size() && sign == '-') {
      text = without_white_end(text);
    } else if (tag < source_.size() && sign != '+' && source_[tag + 1] != '{') {  // lstrip_blocks
      const std::size_t begin = text.rfind('\n') + 1;                             // npos + 1 is 0
      const std::string_view indent = text.substr(begin);
      if ((begin > 0 || begins_line_) && without_white_end(indent).empty())
        text = text.substr(0, begin);
    }
    if (!text.empty()) add(TokenKind::text, std::string(text));
    go_to(tag);
  }

  void begin_tag(std::size_t tag) {
    const char kind = source_[tag + 1];
    std::size_t at = tag + 2;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    if (kind == '#') return end_comment(at);
    if (kind == '%' && is_raw(at)) return add_raw(at);
    add(kind == '{' ? TokenKind::variable_begin : TokenKind::block_begin, "");
    go_to(at);
    inside_tag(kind == '{');
  }

  void end_comment(std::size_t at) {
    const std::size_t end = source_.find("#}", at);
    if (end == std::string::npos) refuse("a comment {# does not end");
    go_to(end);
    end_tag(
        end > at && (source_[end - 1] == '-' || source_[end - 1] == '+') ? source_[end - 1] : '\0',
        /*is_variable=*/false);
  }

  /// Behind the closing bracket at at_: white space that the tag strips.
  void end_tag(char sign, bool is_variable) {
    std::size_t at = at_ + 2;
    if (sign == '-') {
      while (at < source_.size()) {
        const Utf8Char next = utf8_char_at(source_, at);
        if (!is_white_space(next.code_point)) break;
        at += next.size;
      }
    } else if (sign != '+' && !is_variable && at < source_.size() && source_[at] == '\n') {
      ++at;  // trim_blocks
    }
    go_to(at);
    begins_line_ = source_[at - 1] == '\n';
  }

  /// Where the word's tag "{% word %}" ends if one begins at `at`, behind its bracket; npos if not.
  std::size_t end_of_word_tag(std::size_t at, std::string_view word, char& sign) const {
    const auto skip = [&] {
      while (at < source_.size() && is_blank(source_[at])) ++at;
    };
    skip();
    if (!has(word, at)) return std::string::npos;
    at += word.size();
    skip();
    sign = at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
    if (sign != '\0') ++at;
    return has("%}", at) ? at : std::string::npos;
  }
  bool is_raw(std::size_t at) const {
    char sign = '\0';
    return end_of_word_tag(at, "raw", sign) != std::string::npos;
  }

  void add_raw(std::size_t at) {
    char sign = '\0';
    go_to(end_of_word_tag(at, "raw", sign));
    end_tag(sign, /*is_variable=*/false);
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      std::size_t word = tag + 2;
      if (word < source_.size() && (source_[word] == '-' || source_[word] == '+')) ++word;
      const std::size_t end = end_of_word_tag(word, "endraw", sign);
      if (end == std::string::npos) continue;
      add_text(tag);
      go_to(end);
      return end_tag(sign, /*is_variable=*/false);
    }
    refuse("{% raw %} has no {% endraw %}");
  }

  void inside_tag(bool is_variable) {
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
        return end_tag(sign, is_variable);
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

  void name() {
    std::size_t end = at_;
    while (end < source_.size() && (begins_name(source_[end]) || is_digit(source_[end]))) ++end;
    add(TokenKind::name, source_.substr(at_, end - at_));
    go_to(end);
  }

  void number() {
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

  /// A code point of `n` hexadecimal digits behind an escape.
  char32_t hex(std::size_t at, std::size_t n) const {
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

  void string(char quote_sign) {
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

  void sign(std::string& open) {
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

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool begins_line_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) {
  if (const auto at = first_invalid_utf8(source))
    throw FormatError(fmt::format("byte {} is not UTF-8", *at));
  return Lexer(source).run();
}

}  // namespace kvscope::jinja
