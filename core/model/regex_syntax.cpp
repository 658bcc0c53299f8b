#include "core/model/regex_syntax.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

// Contents of a bracket expression. \s is White_Space (PCRE2's own also has U+180E), \w is
// Alphabetic, marks, decimal numbers and connectors (PCRE2's own is letters, numbers and "_").
constexpr std::string_view kSpace =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{"
    "205f}\\x{3000}";
constexpr std::string_view kNotSpace =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{"
    "10ffff}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kHexDigit = "0-9A-Fa-f";

constexpr std::string_view kCaseInSet = "upper or lower case in a set that ignores case";

// Properties that are not scripts, in loose spelling, and PCRE2's name for them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 20> kProperties = {{
    {"any", "Any"},
    {"alpha", "Alphabetic"},
    {"alphabetic", "Alphabetic"},
    {"upper", "Uppercase"},
    {"uppercase", "Uppercase"},
    {"lower", "Lowercase"},
    {"lowercase", "Lowercase"},
    {"space", "White_Space"},
    {"whitespace", "White_Space"},
    {"digit", "Nd"},
    {"emoji", "Emoji"},
    {"ideographic", "Ideographic"},
    {"letter", "L"},
    {"mark", "M"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"punctuation", "P"},
    {"symbol", "S"},
    {"separator", "Z"},
    {"other", "C"},
}};

// A set that ignores case also matches the partners of its members in Oniguruma; PCRE2 looks for
// the partners of single characters, not of properties. These properties (loose spelling) have
// members whose partners lack the property: with the characters named here beside it, to which
// PCRE2 adds their partners, the set is Oniguruma's, also for \P. Found by comparing both over all
// characters.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kPartners = {{
    {"l", "\\x{345}"},
    {"lc", "\\x{345}"},
    {"m", "\\x{345}"},
    {"mn", "\\x{345}"},
    {"emoji", "\\x{24c2}"},
    {"greek", "\\x{b5}\\x{345}"},
    {"grek", "\\x{b5}\\x{345}"},
    {"common", "\\x{b5}"},
    {"zyyy", "\\x{b5}"},
    {"inherited", "\\x{345}"},
    {"zinh", "\\x{345}"},
}};

// Which case a letter has. Oniguruma tests that as it is outside of sets, even where case is
// ignored; PCRE2 does so until 10.44, and lets each of Lu, Ll and Lt match all three since 10.45.
bool is_case(std::string_view loose) {
  constexpr std::array<std::string_view, 5> kCases = {"lu", "ll", "lt", "uppercase", "lowercase"};
  return std::find(kCases.begin(), kCases.end(), loose) != kCases.end();
}

std::string lower_ascii(std::string_view text) {
  std::string lower;
  for (const char c : text) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return lower;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

class Translator {
 public:
  Translator(std::string_view in, const std::string& where) : in_(in), where_(where) {}

  std::string run() {
    groups_.push_back({0, false});
    while (!at_end()) item();
    if (groups_.size() != 1) refuse("a group that is not closed");
    return std::move(out_);
  }

 private:
  bool at_end() const { return pos_ >= in_.size(); }
  char peek(std::size_t ahead = 0) const {
    return pos_ + ahead < in_.size() ? in_[pos_ + ahead] : '\0';
  }
  bool accept(std::string_view text) {
    if (!in_.substr(pos_).starts_with(text)) return false;
    pos_ += text.size();
    return true;
  }
  [[noreturn]] void refuse(std::string_view what) const {
    throw ConfigError("{}: the regular expression {} has, before offset {}, {}: not supported",
                      where_, quote(in_, 200), pos_, what);
  }

  void begin_atom() { atom_ = out_.size(); }

  void item() {
    switch (peek()) {
      case '\\':
        begin_atom();
        ++pos_;
        escape();
        return;
      case '[':
        begin_atom();
        bracket();
        return;
      case '(':
        open_group();
        return;
      case ')':
        ++pos_;
        if (groups_.size() == 1) refuse("a closing parenthesis too many");
        out_ += ')';
        atom_ = groups_.back().start;
        ignores_case_ = groups_.back().ignored_case_outside;
        groups_.pop_back();
        return;
      case '|':
      case '^':
      case '$':
        out_ += in_[pos_++];
        atom_.reset();
        return;
      case '*':
      case '+':
      case '?':
        simple_quantifier();
        return;
      case '{':
        interval();
        return;
      default:
        begin_atom();
        copy_char();
    }
  }

  void copy_char() {
    const std::size_t size = utf8_char_at(in_, pos_).size;
    out_ += in_.substr(pos_, size);
    pos_ += size;
  }

  void emit(char32_t code_point) { out_ += fmt::format("\\x{{{:x}}}", std::uint32_t{code_point}); }

  // ---- quantifiers

  void simple_quantifier() {
    if (!atom_) refuse("a quantifier with nothing to repeat");
    out_ += in_[pos_++];
    if (peek() == '?' || peek() == '+') out_ += in_[pos_++];
    atom_.reset();
  }

  std::optional<unsigned> number() {
    if (!is_digit(peek())) return std::nullopt;
    unsigned value = 0;
    while (is_digit(peek())) {
      value = value * 10 + static_cast<unsigned>(in_[pos_++] - '0');
      if (value > 65535) refuse("a repeat count over 65535");
    }
    return value;
  }

  // {n}, {n,}, {n,m} or {,m}; any other brace is itself.
  void interval() {
    const std::size_t start = pos_++;
    const std::optional<unsigned> least = number();
    const bool has_comma = accept(",");
    const std::optional<unsigned> most = has_comma ? number() : least;
    if (!accept("}") || (!least && !most)) {
      pos_ = start + 1;
      begin_atom();
      out_ += "\\{";
      return;
    }
    if (!atom_) refuse("a quantifier with nothing to repeat");
    if (most && *most < least.value_or(0)) refuse("a repeat range that runs backwards");
    out_ += fmt::format("{{{},{}}}", least.value_or(0), most ? std::to_string(*most) : "");
    if (peek() == '?') {
      if (!has_comma) refuse("{n}?");
      out_ += in_[pos_++];
    } else if (peek() == '+') {
      ++pos_;
      out_.insert(*atom_, "(?:");
      out_ += ")+";
    }
    atom_.reset();
  }

  // ---- groups

  void open_group() {
    const std::size_t start = out_.size();
    ++pos_;
    if (peek() == '*') refuse("(*");
    if (accept("?")) {
      if (accept("#")) {
        const std::size_t end = in_.find(')', pos_);
        if (end == std::string_view::npos) refuse("a comment that is not closed");
        pos_ = end + 1;
        return;
      }
      if (is_letter(peek()) || peek() == '-') return options(start);
      kind_of_group();
    } else {
      out_ += "(?:";
    }
    groups_.push_back({start, ignores_case_});
    body_start_ = out_.size();
    atom_.reset();
  }

  void kind_of_group() {
    for (std::string_view kind : {":", "=", "!", ">", "<=", "<!"}) {
      if (accept(kind)) {
        out_ += "(?";
        out_ += kind;
        return;
      }
    }
    if (!accept("<")) refuse("an unknown kind of group");
    while (is_letter(peek()) || is_digit(peek()) || peek() == '_') ++pos_;
    if (!accept(">")) refuse("an unknown kind of group");
    out_ += "(?:";
  }

  // (?i) and (?i:...). Oniguruma's m is PCRE2's s.
  void options(std::size_t start) {
    std::string flags;
    bool ignores_case = ignores_case_;
    bool is_on = true;
    while (peek() != ')' && peek() != ':') {
      const char c = peek();
      if (c != 'i' && c != 'm' && c != '-') refuse("an option other than i and m");
      if (c == '-') is_on = false;
      if (c == 'i') ignores_case = is_on;
      flags += c == 'm' ? 's' : c;
      ++pos_;
    }
    const bool is_group = in_[pos_++] == ':';
    // In mid-group the two dialects disagree on which alternatives the option reaches.
    if (!is_group && start != body_start_)
      refuse("an option that is not at the start of its group");
    out_ += fmt::format("(?{}{}", flags, is_group ? ':' : ')');
    if (is_group) groups_.push_back({start, ignores_case_});
    ignores_case_ = ignores_case;
    body_start_ = out_.size();
    atom_.reset();
  }

  // ---- escapes

  void escape() {
    const char c = peek();
    switch (c) {
      case 's':
        return shorthand("[", kSpace);
      case 'S':
        return shorthand("[^", kSpace);
      case 'w':
        return shorthand("[", kWord);
      case 'W':
        return shorthand("[^", kWord);
      case 'h':
        return shorthand("[", kHexDigit);
      case 'H':
        return shorthand("[^", kHexDigit);
      case 'b':
        ++pos_;
        out_ += fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord);
        return;
      case 'B':
        ++pos_;
        out_ += fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWord);
        return;
      case 'A':
      case 'z':
      case 'Z':
        out_ += '\\';
        out_ += in_[pos_++];
        atom_.reset();
        return;
      default:
        escape_in_both(/*in_set=*/false);
    }
  }

  void shorthand(std::string_view open, std::string_view contents) {
    ++pos_;
    out_ += open;
    out_ += contents;
    out_ += ']';
  }

  // Escapes that mean the same inside and outside brackets.
  void escape_in_both(bool in_set) {
    if (at_end()) refuse("a backslash at its end");
    const char c = in_[pos_];
    if (c == 'd' || c == 'D') {
      ++pos_;
      out_ += c == 'd' ? "\\p{Nd}" : "\\P{Nd}";
    } else if (c == 'p' || c == 'P') {
      ++pos_;
      property(/*negated=*/c == 'P', in_set);
    } else if (is_letter(c) || is_digit(c)) {
      emit(literal_escape());
    } else if (static_cast<unsigned char>(c) < 0x80) {
      ++pos_;
      emit(static_cast<char32_t>(c));
    } else {
      copy_char();
    }
  }

  char32_t literal_escape() {
    const char c = in_[pos_++];
    switch (c) {
      case 't':
        return 0x09;
      case 'n':
        return 0x0a;
      case 'v':
        return 0x0b;
      case 'f':
        return 0x0c;
      case 'r':
        return 0x0d;
      case 'a':
        return 0x07;
      case 'e':
        return 0x1b;
      case 'u':
        return code_point(hex(4, 4));
      case 'x': {
        if (accept("{")) {
          const char32_t value = hex(1, 8);
          if (!accept("}")) refuse("\\x{ that is not closed");
          return code_point(value);
        }
        const char32_t value = hex(1, 2);
        if (value >= 0x80) refuse("a byte of a character (\\x80 to \\xff)");
        return value;
      }
      default:
        refuse(fmt::format("\\{}", c));
    }
  }

  char32_t hex(int least, int most) {
    char32_t value = 0;
    int n = 0;
    for (; n < most; ++n, ++pos_) {
      const char c = peek();
      const bool is_hex = is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!is_hex) break;
      value = value * 16 + static_cast<char32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (n < least) refuse("too few hexadecimal digits");
    return value;
  }

  char32_t code_point(char32_t value) const {
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
      refuse("no code point of Unicode");
    return value;
  }

  // \p{Lu}, \p{^Lu}, \p{Han}: general categories, a few properties, and scripts.
  void property(bool negated, bool in_set) {
    if (!accept("{")) refuse("\\p without {");
    if (accept("^")) negated = !negated;
    std::string name, loose;
    while (!at_end() && peek() != '}') {
      const char c = in_[pos_++];
      if (!is_letter(c) && c != '_' && c != '-' && c != ' ') refuse("an unknown property");
      name += c;
      if (is_letter(c)) loose += static_cast<char>(c | 0x20);
    }
    if (!accept("}") || loose.empty()) refuse("an unknown property");
    const auto known = std::find_if(kProperties.begin(), kProperties.end(),
                                    [&](const auto& p) { return p.first == loose; });
    const std::string translated = known != kProperties.end() ? std::string(known->second)
                                   : loose.size() <= 2        ? name
                                                              : "sc:" + name;
    const std::string test = fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', translated);
    if (known != kProperties.end()) loose = lower_ascii(known->second);
    if (ignores_case_ && in_set) {
      add_with_partners(test, loose);
    } else {
      out_ += ignores_case_ && is_case(loose) ? fmt::format("(?-i:{})", test) : test;
    }
  }

  void add_with_partners(std::string_view test, std::string_view loose) {
    if (is_case(loose)) refuse(kCaseInSet);
    out_ += test;
    for (const auto& [name, partners] : kPartners) {
      if (name == loose) out_ += partners;
    }
  }

  // ---- bracket expressions

  void bracket() {
    ++pos_;
    out_ += '[';
    if (accept("^")) out_ += '^';
    if (peek() == ']') refuse("an empty set");
    while (peek() != ']') {
      if (at_end()) refuse("a set that is not closed");
      if (in_.substr(pos_).starts_with("&&")) refuse("an intersection of sets");
      if (peek() == '[') {
        if (peek(1) != ':') refuse("a set in a set");
        posix_class();
      } else if (peek() == '\\') {
        ++pos_;
        escape_in_bracket();
      } else {
        copy_char();
      }
    }
    ++pos_;
    out_ += ']';
  }

  void escape_in_bracket() {
    const char c = peek();
    if (c == 's' || c == 'S' || c == 'w' || c == 'h') {
      ++pos_;
      out_ += c == 's' ? kSpace : c == 'S' ? kNotSpace : c == 'w' ? kWord : kHexDigit;
    } else if (c == 'b') {
      ++pos_;
      emit(0x08);
    } else {
      escape_in_both(/*in_set=*/true);
    }
  }

  void posix_class() {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kClasses = {{
        {"[:alpha:]", "\\p{Alphabetic}"},
        {"[:digit:]", "\\p{Nd}"},
        {"[:alnum:]", "\\p{Alphabetic}\\p{Nd}"},
        {"[:upper:]", "\\p{Uppercase}"},
        {"[:lower:]", "\\p{Lowercase}"},
        {"[:space:]", kSpace},
        {"[:word:]", kWord},
        {"[:xdigit:]", kHexDigit},
    }};
    for (const auto& [name, contents] : kClasses) {
      if (accept(name)) {
        if (ignores_case_ && (name == "[:upper:]" || name == "[:lower:]")) refuse(kCaseInSet);
        out_ += contents;
        return;
      }
    }
    refuse("an unknown class");
  }

  std::string_view in_;
  const std::string& where_;
  std::size_t pos_ = 0;
  std::string out_;
  // Where in out_ the thing begins that a quantifier would repeat.
  std::optional<std::size_t> atom_;
  struct Group {
    std::size_t start;  // in out_
    bool ignored_case_outside;
  };
  std::vector<Group> groups_;   // the open ones
  bool ignores_case_ = false;   // here
  std::size_t body_start_ = 0;  // just behind the latest opening of a group, in out_
};

}  // namespace

std::string pcre2_from_oniguruma(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace kvscope
