#include "core/model/chat/jinja_lexer.hpp"

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"
#include "core/model/chat/jinja_tag_lexer.hpp"

namespace kvscope::jinja {

namespace {

std::string_view without_white_end(std::string_view text) {
  while (!text.empty()) {
    const std::size_t last = utf8_char_before(text, text.size());
    if (!is_white_space(utf8_char_at(text, last).code_point)) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

class Lexer : private TagLexer {
 public:
  using TagLexer::TagLexer;

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
    end_tag(read_tag(kind == '{'), kind == '{');
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

  bool begins_line_ = true;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) {
  if (const auto at = first_invalid_utf8(source)) throw FormatError("byte {} is not UTF-8", *at);
  return Lexer(source).run();
}

}  // namespace kvscope::jinja
