// The tokens inside a tag of a Jinja template, and a place in its text.
#pragma once

#include "core/base/vocabulary.hpp"
#include "core/model/chat/jinja_lexer.hpp"

namespace kvscope::jinja {

/// Reads one tag at a time; what stands between tags is the business of jinja_lexer.cpp.
class TagLexer {
 public:
  /// Every line break of `source` becomes \n, and one at its end is dropped, as Jinja reads them.
  explicit TagLexer(std::string_view source);

 protected:
  [[noreturn]] void refuse(const std::string& what) const;
  bool has(std::string_view word, std::size_t at) const {
    return std::string_view(source_).substr(at).starts_with(word);
  }
  static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  /// Moves on, counting lines.
  void go_to(std::size_t at);
  /// Reads up to the bracket that closes the tag and stops there. Returns the - or + in front of
  /// it, or a zero.
  char read_tag(bool is_variable);

  std::string source_;
  std::size_t at_ = 0;
  std::vector<Token> tokens_;

 private:
  void name();
  void number();
  void string(char quote_sign);
  void sign(std::string& open);
  /// A code point of `n` hexadecimal digits behind an escape.
  char32_t hex(std::size_t at, std::size_t n) const;

  int line_ = 1;
};

}  // namespace kvscope::jinja
