#include "core/base/escape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/json_reader.hpp"
#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

bool is_noncharacter(char32_t c) {
  return (c & 0xfffe) == 0xfffe || (c >= 0xfdd0 && c <= 0xfdef);
}

/// Calls on_char(bytes, code point) for each well-formed character, on_byte(byte) for other bytes.
template <class OnChar, class OnByte>
void for_each_char(std::string_view text, OnChar on_char, OnByte on_byte) {
  while (!text.empty()) {
    const std::size_t n_good = first_invalid_utf8(text).value_or(text.size());
    for (std::size_t at = 0; at < n_good;) {
      const Utf8Char c = utf8_char_at(text, at);
      on_char(text.substr(at, c.size), c.code_point);
      at += c.size;
    }
    if (n_good < text.size()) on_byte(static_cast<std::uint8_t>(text[n_good]));
    text.remove_prefix(std::min(n_good + 1, text.size()));
  }
}

using Sign = std::pair<std::string_view, std::string_view>;

/// Characters that LaTeX knows by name, in math mode.
constexpr std::array<Sign, 35> kMathNames = {{
    {"α", "\\alpha "},   {"β", "\\beta "},     {"γ", "\\gamma "},  {"δ", "\\delta "},
    {"ε", "\\epsilon "}, {"θ", "\\theta "},    {"λ", "\\lambda "}, {"μ", "\\mu "},
    {"π", "\\pi "},      {"ρ", "\\rho "},      {"σ", "\\sigma "},  {"τ", "\\tau "},
    {"Δ", "\\Delta "},   {"Σ", "\\Sigma "},    {"≤", "\\le "},     {"≥", "\\ge "},
    {"−", "-"},          {"×", "\\times "},    {"·", "\\cdot "},   {"∞", "\\infty "},
    {"→", "\\to "},      {"±", "\\pm "},       {"≈", "\\approx "}, {"√", "\\surd "},
    {"∈", "\\in "},      {"ŝ", "\\hat s"},     {"Ŝ", "\\hat S"},   {"‖", "\\|"},
    {"∩", "\\cap "},     {"∪", "\\cup "},      {"µ", "\\mu "},     {"²", "{}^{2}"},
    {"³", "{}^{3}"},     {"°", "{}^{\\circ}"}, {"†", "\\dagger "},
}};

/// ASCII signs with a meaning. Brackets and stars are arguments of a line break before them.
constexpr std::array<Sign, 15> kTextSigns = {{
    {"\\", "\\textbackslash{}"},
    {"{", "\\{"},
    {"}", "\\}"},
    {"$", "\\$"},
    {"&", "\\&"},
    {"#", "\\#"},
    {"%", "\\%"},
    {"_", "\\_"},
    {"^", "\\textasciicircum{}"},
    {"~", "\\textasciitilde{}"},
    {"<", "\\textless{}"},
    {">", "\\textgreater{}"},
    {"|", "\\textbar{}"},
    {"[", "{[}"},
    {"]", "{]}"},
}};

constexpr std::array<Sign, 10> kMathSigns = {{
    {"\\", "\\backslash "},
    {"{", "\\{"},
    {"}", "\\}"},
    {"$", "\\$"},
    {"&", "\\&"},
    {"#", "\\#"},
    {"%", "\\%"},
    {"_", "\\_"},
    {"^", "\\hat{}"},
    {"~", "\\sim "},
}};

template <std::size_t n>
std::string_view find_sign(const std::array<Sign, n>& signs, std::string_view character) {
  for (const auto& [sign, written] : signs) {
    if (sign == character) return written;
  }
  return {};
}

/// Whether LaTeX's fonts make another sign of the two: dashes, quotation marks, ?` and !`.
bool is_joined_in_tex(char left, char right) {
  const bool is_doubled = left == right && std::string_view("-,'`").find(left) != std::string::npos;
  return is_doubled || (right == '`' && (left == '?' || left == '!'));
}

/// Letters and dashes that LaTeX's own tables have for every text font.
bool is_known_to_pdftex(char32_t c) {
  const bool latin = c >= 0xc0 && c <= 0xff && c != 0xd0 && c != 0xf0 && c != 0xde && c != 0xfe &&
                     c != 0xd7 && c != 0xf7;
  return latin || c == 0x2018 || c == 0x2019 || c == 0x201c || c == 0x201d || c == 0x2026;
}

/// True for signs that turn the order of what is shown around them, or that nobody sees: bidi
/// embeddings, overrides and isolates, zero-width characters, tags.
bool is_hidden_format(char32_t c) {
  return c == 0xad || c == 0x61c || c == 0x180e || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
         (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe0fff);
}

}  // namespace

std::string clean_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool after_cr = false;
  for_each_char(
      text,
      [&](std::string_view bytes, char32_t c) {
        const bool is_second = after_cr && c == '\n';
        after_cr = c == '\r';
        if (is_second) return;
        if (c == '\r') {
          out += '\n';
        } else if (is_noncharacter(c) || (is_control(c) && c != '\n' && c != '\t')) {
          out += kReplacement;
        } else {
          out += bytes;
        }
      },
      [&](std::uint8_t) {
        after_cr = false;
        out += kReplacement;
      });
  return out;
}

std::string xml_escape(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text)) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += c == '\n' || c == '\t' ? ' ' : c;
    }
  }
  return out;
}

std::string markdown_escape(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text)) {
    if (c == '\n' || c == '\t') {
      out += ' ';
    } else if (c == '<') {
      out += "&lt;";  // renderers differ on "\<", and HTML must not begin anywhere
    } else if (c == '&') {
      out += "&amp;";
    } else {
      if (std::string_view("|*_>`\\[]~$").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

std::string tex_character(std::string_view character, bool in_math) {
  if (first_invalid_utf8(character) || character.empty()) return "?";
  const char32_t c = utf8_char_at(character, 0).code_point;
  if (c == '\n' || c == '\t' || c == 0xa0) return in_math ? "\\ " : " ";
  if (is_hidden_format(c)) return {};
  if (is_control(c) || is_noncharacter(c) || c == 0xfffd) return "?";
  if (const std::string_view name = find_sign(kMathNames, character); !name.empty()) {
    if (in_math) return std::string(name);
    return fmt::format("${}$", name.substr(0, name.find_last_not_of(' ') + 1));
  }
  const std::string_view sign =
      in_math ? find_sign(kMathSigns, character) : find_sign(kTextSigns, character);
  if (!sign.empty()) return std::string(sign);
  if (c < 0x80) return std::string(character);
  if (c == 0x2013) return in_math ? "-" : "--";
  if (c == 0x2014) return in_math ? "-" : "---";
  const std::string known = is_known_to_pdftex(c)
                                ? std::string(character)
                                : fmt::format("\\ifdefined\\Umathcode {}\\else U+{:04X}\\fi{{}}",
                                              character, static_cast<std::uint32_t>(c));
  return in_math ? fmt::format("\\mbox{{{}}}", known) : known;
}

std::string tex_escape(std::string_view text) {
  std::string out;
  for_each_char(
      clean_text(text),
      [&](std::string_view bytes, char32_t) {
        const std::string sign = tex_character(bytes, /*in_math=*/false);
        if (!out.empty() && !sign.empty() && is_joined_in_tex(out.back(), sign.front()))
          out += "{}";
        out += sign;
      },
      [](std::uint8_t) {});
  return out;
}

std::string terminal_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_char(
      text,
      [&](std::string_view bytes, char32_t c) {
        const bool is_raw = c == '\n' || c == '\t' ||
                            (!is_control(c) && !is_noncharacter(c) && !is_hidden_format(c));
        if (is_raw) {
          out += bytes;
        } else if (c < 0x10000) {
          out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
        } else {
          const auto rest = static_cast<std::uint32_t>(c) - 0x10000;
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
        }
      },
      [&](std::uint8_t byte) { out += fmt::format("\\x{:02x}", byte); });
  return out;
}

std::string shortened(std::string_view text, std::size_t most) {
  constexpr std::string_view kGap = " ... ";
  if (text.size() <= most) return std::string(text);
  const auto is_inside = [&](std::size_t at) {
    return at > 0 && at < text.size() && (static_cast<std::uint8_t>(text[at]) & 0xc0) == 0x80;
  };
  std::size_t head = most > kGap.size() ? (most - kGap.size()) * 2 / 3 : 0;
  std::size_t tail = text.size() - (most > kGap.size() ? (most - kGap.size()) / 3 : 0);
  for (int i = 0; i < 3 && is_inside(head); ++i) --head;
  for (int i = 0; i < 3 && is_inside(tail); ++i) ++tail;
  return fmt::format("{}{}{}", text.substr(0, head), kGap, text.substr(tail));
}

std::string short_message(std::string_view message) {
  constexpr std::size_t kMostWord = 300;
  constexpr std::size_t kMostMessage = 4000;
  std::string out;
  for (std::size_t at = 0; at < message.size();) {
    const std::size_t end = std::min(message.find_first_of(" \n\t", at), message.size());
    out += shortened(message.substr(at, end - at), kMostWord);
    if (end < message.size()) out += message[end];
    at = end + 1;
  }
  return shortened(out, kMostMessage);
}

std::string some_of(const std::vector<std::string>& names, std::size_t most) {
  std::string out;
  const std::size_t n = names.size() > most + 1 ? most : names.size();
  for (std::size_t i = 0; i < n; ++i) {
    const bool is_plain =
        names[i].size() <= 80 && !names[i].empty() &&
        std::all_of(names[i].begin(), names[i].end(), [](char c) { return c > 0x20 && c < 0x7f; });
    out += (i == 0 ? "" : ", ") + (is_plain ? names[i] : quote(names[i], 60));
  }
  if (n < names.size()) out += fmt::format(" and {} more", names.size() - n);
  return out;
}

}  // namespace kvscope
