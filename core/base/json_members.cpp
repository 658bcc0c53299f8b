#include "core/base/json_members.hpp"

#include <array>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"

namespace kvscope {

namespace {

class MemberScanner {
 public:
  MemberScanner(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  void each(const std::function<void(std::string_view, std::string_view)>& visit) {
    skip_space();
    expect('{');
    skip_space();
    if (peek() == '}') return;
    for (;;) {
      skip_space();
      const std::string_view name = string();
      skip_space();
      expect(':');
      skip_space();
      const std::string_view value = this->value();
      visit(name.substr(1, name.size() - 2), value);
      skip_space();
      if (peek() == '}') return;
      expect(',');
    }
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    throw FormatError("{}: expected {} at byte {}, found {}", where_, expected, at_,
                      at_ < text_.size() ? quote(text_.substr(at_, 1)) : "the end of the text");
  }
  char peek() const {
    if (at_ >= text_.size()) fail("more of a JSON object");
    return text_[at_];
  }
  void expect(char c) {
    if (peek() != c) fail(quote(std::string_view(&c, 1)));
    ++at_;
  }
  void skip_space() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }

  std::string_view string() {
    const std::size_t begin = at_;
    expect('"');
    while (peek() != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    return text_.substr(begin, ++at_ - begin);
  }

  std::string_view value() {
    // What ends a number or word, or changes how deep brackets are.
    static constexpr std::array<bool, 256> kMatters = [] {
      std::array<bool, 256> matters{};
      for (const char c : {'"', '{', '[', '}', ']', ','})
        matters[static_cast<unsigned char>(c)] = true;
      return matters;
    }();
    const std::size_t begin = at_;
    for (std::size_t depth = 0;; ++at_) {
      while (at_ < text_.size() && !kMatters[static_cast<unsigned char>(text_[at_])]) ++at_;
      const char c = peek();
      if (c == '"') {
        string();
        if (depth == 0) break;
        --at_;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (depth == 0) {
        break;  // a comma or bracket after a number or word
      } else if (c != ',' && --depth == 0) {
        ++at_;
        break;
      }
    }
    if (at_ == begin) fail("a value");
    return text_.substr(begin, at_ - begin);
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t at_ = 0;
};

}  // namespace

void for_each_json_member(std::string_view text, std::string_view where,
                          const std::function<void(std::string_view, std::string_view)>& visit) {
  MemberScanner(text, where).each(visit);
}

}  // namespace kvscope
