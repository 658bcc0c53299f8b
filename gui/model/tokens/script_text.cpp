#include "gui/model/tokens/script_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "gui/model/tokens/token_lines.hpp"

namespace kvscope::gui {

namespace {

/// Bytes of the character that a first byte announces; 0: it announces none.
std::size_t announced(char first) {
  const auto byte = static_cast<std::uint8_t>(first);
  return byte >= 0xc2 && byte < 0xe0   ? 2
         : byte >= 0xe0 && byte < 0xf0 ? 3
         : byte >= 0xf0 && byte < 0xf5 ? 4
                                       : 0;
}

bool is_tail_byte(char c) {
  return (static_cast<std::uint8_t>(c) & 0xc0) == 0x80;
}

/// Where an unfinished character begins at the end of the bytes; their size if there is none.
std::size_t begin_of_unfinished(std::string_view bytes) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, bytes.size()); ++back) {
    const std::size_t at = bytes.size() - back;
    if (is_tail_byte(bytes[at])) continue;
    return announced(bytes[at]) > back ? at : bytes.size();
  }
  return bytes.size();
}

/// First of the forms of U+0621 to U+064A among U+FE80...: alone, at the end, at the beginning, in
/// the middle; and how many there are. 0: the letter has none.
struct LetterForms {
  char16_t first = 0;
  int n = 0;
};
constexpr std::array<LetterForms, 42> kForms = {{
    {0xfe80, 1}, {0xfe81, 2}, {0xfe83, 2}, {0xfe85, 2}, {0xfe87, 2}, {0xfe89, 4}, {0xfe8d, 2},
    {0xfe8f, 4}, {0xfe93, 2}, {0xfe95, 4}, {0xfe99, 4}, {0xfe9d, 4}, {0xfea1, 4}, {0xfea5, 4},
    {0xfea9, 2}, {0xfeab, 2}, {0xfead, 2}, {0xfeaf, 2}, {0xfeb1, 4}, {0xfeb5, 4}, {0xfeb9, 4},
    {0xfebd, 4}, {0xfec1, 4}, {0xfec5, 4}, {0xfec9, 4}, {0xfecd, 4}, {},          {},
    {},          {},          {},          {},          {0xfed1, 4}, {0xfed5, 4}, {0xfed9, 4},
    {0xfedd, 4}, {0xfee1, 4}, {0xfee5, 4}, {0xfee9, 4}, {0xfeed, 2}, {0xfeef, 2}, {0xfef1, 4},
}};
constexpr char32_t kFirstLetter = 0x621;
constexpr char32_t kStretch = 0x640;

/// Letters of Persian and Urdu, whose forms stand elsewhere.
struct OtherLetter {
  char32_t letter;
  LetterForms forms;
};
constexpr OtherLetter kOtherForms[] = {
    {0x679, {0xfb66, 4}}, {0x67e, {0xfb56, 4}}, {0x686, {0xfb7a, 4}}, {0x688, {0xfb88, 2}},
    {0x691, {0xfb8c, 2}}, {0x698, {0xfb8a, 2}}, {0x6a9, {0xfb8e, 4}}, {0x6af, {0xfb92, 4}},
    {0x6ba, {0xfb9e, 2}}, {0x6be, {0xfbaa, 4}}, {0x6c1, {0xfba6, 4}}, {0x6cc, {0xfbfc, 4}},
    {0x6d2, {0xfbae, 2}},
};

LetterForms forms_of(char32_t c) {
  for (const OtherLetter& other : kOtherForms)
    if (other.letter == c) return other.forms;
  return c >= kFirstLetter && c < kFirstLetter + kForms.size()
             ? kForms[static_cast<std::size_t>(c - kFirstLetter)]
             : LetterForms{};
}
bool joins_next(char32_t c) {
  return forms_of(c).n == 4 || c == kStretch;
}
bool joins_before(char32_t c) {
  return forms_of(c).n >= 2 || c == kStretch;
}

/// Signs beyond ASCII that stand for spaces and line breaks are none.
bool is_letter(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= 0xc0 && !(c >= 0x2000 && c <= 0x2bff));
}

}  // namespace

std::vector<std::string> whole_characters(const std::vector<std::string>& token_bytes) {
  std::vector<std::string> out = token_bytes;
  for (std::size_t i = 0; i + 1 < out.size(); ++i) {
    const std::size_t begin = begin_of_unfinished(out[i]);
    if (begin == out[i].size()) continue;
    std::size_t missing = announced(out[i][begin]) - (out[i].size() - begin);
    // Only where the following tokens have all that is missing.
    std::vector<std::size_t> taken;  // bytes of the tokens after this one
    for (std::size_t j = i + 1; j < out.size() && missing > 0; ++j) {
      std::size_t n = 0;
      while (n < out[j].size() && n < missing && is_tail_byte(out[j][n])) ++n;
      taken.push_back(n);
      missing -= n;
      if (n < out[j].size()) break;
    }
    if (missing > 0) continue;
    for (std::size_t j = 0; j < taken.size(); ++j) {
      std::string& from = out[i + 1 + j];
      out[i] += from.substr(0, taken[j]);
      from.erase(0, taken[j]);
    }
  }
  return out;
}

bool is_right_to_left(char32_t c) {
  return (c >= 0x590 && c <= 0x8ff) || (c >= 0xfb1d && c <= 0xfdff) || (c >= 0xfe70 && c <= 0xfefc);
}

bool runs_right_to_left(std::string_view utf8) {
  const auto all = characters_of(utf8);
  const auto first = std::ranges::find_if(all, is_letter);
  return first != all.end() && is_right_to_left(*first);
}

bool has_letters(std::string_view utf8) {
  return std::ranges::any_of(characters_of(utf8), is_letter);
}

std::u32string joined_letters(std::u32string_view text, char32_t before, char32_t after) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const LetterForms forms = forms_of(text[i]);
    if (forms.n == 0) {
      out += text[i];
      continue;
    }
    const char32_t left = i > 0 ? text[i - 1] : before;
    const char32_t right = i + 1 < text.size() ? text[i + 1] : after;
    const bool joined_before = forms.n >= 2 && joins_next(left);
    const bool joined_after = forms.n == 4 && joins_before(right);
    const int form = (joined_before ? 1 : 0) + (joined_after ? 2 : 0);
    out += static_cast<char32_t>(forms.first + form);
  }
  return out;
}

std::u32string drawn_order(std::u32string_view text) {
  std::u32string out(text);
  for (auto begin = out.begin(); begin != out.end();) {
    if (!is_right_to_left(*begin)) {
      ++begin;
      continue;
    }
    auto end = begin;
    auto last = begin;  // signs and spaces between such letters turn with them
    for (; end != out.end() && (is_right_to_left(*end) || *end < 0x80) &&
           !(*end >= '0' && *end <= '9');
         ++end) {
      if (is_right_to_left(*end)) last = end;
    }
    std::reverse(begin, last + 1);
    begin = last + 1;
  }
  return out;
}

// ---- names ----

namespace {

struct Script {
  char32_t first;
  char32_t last;
  std::string_view name;
  bool changes_letters = false;  // beside others, as a shaping engine knows
};

constexpr Script kScripts[] = {
    {0x0530, 0x058f, "Armenian"},
    {0x0590, 0x05ff, "Hebrew"},
    {0x0600, 0x06ff, "Arabic"},
    {0x0700, 0x074f, "Syriac", true},
    {0x0750, 0x077f, "Arabic"},
    {0x0780, 0x07bf, "Thaana"},
    {0x07c0, 0x07ff, "N'Ko", true},
    {0x08a0, 0x08ff, "Arabic"},
    {0x0900, 0x097f, "Devanagari", true},
    {0x0980, 0x09ff, "Bengali", true},
    {0x0a00, 0x0a7f, "Gurmukhi", true},
    {0x0a80, 0x0aff, "Gujarati", true},
    {0x0b00, 0x0b7f, "Oriya", true},
    {0x0b80, 0x0bff, "Tamil", true},
    {0x0c00, 0x0c7f, "Telugu", true},
    {0x0c80, 0x0cff, "Kannada", true},
    {0x0d00, 0x0d7f, "Malayalam", true},
    {0x0d80, 0x0dff, "Sinhala", true},
    {0x0e00, 0x0e7f, "Thai"},
    {0x0e80, 0x0eff, "Lao"},
    {0x0f00, 0x0fff, "Tibetan", true},
    {0x1000, 0x109f, "Burmese", true},
    {0x10a0, 0x10ff, "Georgian"},
    {0x1100, 0x11ff, "Korean"},
    {0x1200, 0x137f, "Ethiopic"},
    {0x13a0, 0x13ff, "Cherokee"},
    {0x1780, 0x17ff, "Khmer", true},
    {0x1800, 0x18af, "Mongolian", true},
    {0x2e80, 0x2fdf, "Chinese"},
    {0x3040, 0x30ff, "Japanese"},
    {0x3130, 0x318f, "Korean"},
    {0x3400, 0x9fff, "Chinese"},
    {0xac00, 0xd7a3, "Korean"},
    {0xf900, 0xfaff, "Chinese"},
    {0xfb50, 0xfdff, "Arabic"},
    {0xfe70, 0xfefc, "Arabic"},
};

const Script* find_script(char32_t c) {
  const auto found = std::ranges::find_if(
      kScripts, [&](const Script& script) { return c >= script.first && c <= script.last; });
  return found == std::end(kScripts) ? nullptr : found;
}

}  // namespace

std::string remark_on_scripts(std::string_view alphabet,
                              const std::function<bool(char32_t)>& lacks) {
  std::set<std::string_view> missing;
  std::set<std::string_view> unshaped;
  int n_missing = 0;
  for (const char32_t c : characters_of(alphabet)) {
    const Script* script = find_script(c);
    const bool is_missing = lacks(c);
    if (is_missing) ++n_missing;
    if (is_missing) missing.insert(script == nullptr ? "other" : script->name);
    if (!is_missing && script != nullptr && script->changes_letters) unshaped.insert(script->name);
  }
  std::string remark;
  if (!missing.empty()) {
    remark = fmt::format(
        "No installed font has {} characters of this text ({}), which are drawn as boxes: install "
        "one, as the packages fonts-noto-core and, for Chinese, Japanese and Korean, "
        "fonts-noto-cjk.",
        n_missing, fmt::join(missing, ", "));
  }
  if (!unshaped.empty()) {
    remark += fmt::format("{}{}: each letter is drawn by itself, not joined with its neighbours.",
                          remark.empty() ? "" : " ", fmt::join(unshaped, ", "));
  }
  return remark;
}

}  // namespace kvscope::gui
