#include "gui/model/tokens/token_lines.hpp"

#include <algorithm>
#include <set>

#include "analysis/base/analysis.hpp"
#include "analysis/plot/font_metrics.hpp"
#include "core/base/utf8.hpp"
#include "gui/model/tokens/script_text.hpp"
#include "gui/model/tokens/token_text.hpp"

namespace kvscope::gui {

namespace {

constexpr Index kTokensPerStopCheck = 8192;
constexpr std::string_view kMiddleDot = "·";
constexpr float kLateInLine = 0.66f;

/// Spaces that the eye cannot count: all of a token of spaces, and rows of two and more.
std::string with_visible_spaces(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != ' ') {
      out += text[i++];
      continue;
    }
    const std::size_t end = std::min(text.find_first_not_of(' ', i), text.size());
    if (end - i == 1 && text.size() > 1) {
      out += ' ';
    } else {
      for (std::size_t n = i; n < end; ++n) out += kMiddleDot;
    }
    i = end;
  }
  return out;
}

/// A token of right-to-left letters as it is drawn: spaces before it stand at its right.
std::string drawn_from_right(std::string_view text, char32_t before, char32_t after) {
  const std::vector<char32_t> all = characters_of(text);
  std::u32string letters(all.begin(), all.end());
  const std::size_t begin = std::min(letters.find_first_not_of(U' '), letters.size());
  const std::size_t end = letters.find_last_not_of(U' ') + 1;
  const std::u32string middle =
      drawn_order(joined_letters(letters.substr(begin, end - begin), begin > 0 ? U' ' : before,
                                 end < letters.size() ? U' ' : after));
  std::string out(letters.size() - end, ' ');
  for (const char32_t c : middle) append_utf8(out, c);
  return out + std::string(begin, ' ');
}

/// Mirrors the places of tokens that are read from right to left, stretch by stretch of a line.
void turn_lines(const TokenTexts& texts, TokenLines& lines) {
  for (Index i = 0; i < lines.n_lines(); ++i) {
    const TokenRange line = lines.line(i);
    for (Index begin = line.begin; begin < line.end;) {
      if (!texts.is_right_to_left(begin)) {
        ++begin;
        continue;
      }
      Index end = begin;
      for (Index pos = begin; pos < line.end && !texts.has_other_letters(pos); ++pos)
        if (texts.is_right_to_left(pos)) end = pos + 1;
      const auto last = static_cast<std::size_t>(end - 1);
      const float left = lines.x[static_cast<std::size_t>(begin)];
      const float right = lines.x[last] + lines.widths[last];
      for (Index pos = begin; pos < end; ++pos) {
        const auto slot = static_cast<std::size_t>(pos);
        lines.x[slot] = left + right - lines.x[slot] - lines.widths[slot];
      }
      begin = end;
    }
  }
}

}  // namespace

// ---- texts ----

TokenTexts TokenTexts::of(const Document& document, JobContext& job) {
  TokenTexts texts;
  const Index n = document.info().n_tokens;
  const bool has_text = document.has_text();
  const std::vector<std::string> whole = whole_characters(document.token_bytes());
  std::set<char32_t> alphabet;
  for (Index pos = 0; pos < n; ++pos) {
    if (pos % kTokensPerStopCheck == 0) check_stop(job.stop, "reading the text");
    const auto slot = static_cast<std::size_t>(pos);
    if (!has_text) {
      texts.add(document.token_text(pos), /*ends_line=*/false, 0, 0);
      continue;
    }
    const bool ends = document.token_bytes()[slot].find('\n') != std::string::npos;
    // Neighbours with letters: others are parts of a character that stands elsewhere.
    std::size_t left = slot;
    std::size_t right = slot + 1;
    while (left > 0 && whole[left - 1].empty()) --left;
    while (right < whole.size() && whole[right].empty()) ++right;
    const auto before = left > 0 ? characters_of(whole[left - 1]) : std::vector<char32_t>();
    const auto after = right < whole.size() ? characters_of(whole[right]) : std::vector<char32_t>();
    texts.add(with_visible_spaces(drawable(whole[slot])), ends, before.empty() ? 0 : before.back(),
              after.empty() ? 0 : after.front());
  }
  for (const char32_t c : characters_of(texts.all_)) alphabet.insert(c);
  for (const char32_t c : alphabet) append_utf8(texts.alphabet_, c);
  return texts;
}

void TokenTexts::add(std::string_view text, bool ends_line, char32_t before, char32_t after) {
  const bool turns = runs_right_to_left(text);
  all_ += turns ? drawn_from_right(text, before, after) : std::string(text);
  begin_.push_back(all_.size());
  ends_line_.push_back(ends_line);
  begins_word_.push_back(text.starts_with(' ') || text.starts_with(kMiddleDot));
  right_to_left_.push_back(turns);
  other_letters_.push_back(!turns && has_letters(text));
}

std::size_t TokenTexts::bytes() const {
  return sizeof *this + all_.size() + begin_.size() * sizeof(std::size_t) + ends_line_.size() / 2 +
         alphabet_.size();
}

std::vector<char32_t> characters_of(std::string_view utf8) {
  std::vector<char32_t> characters;
  for (std::size_t at = 0; at < utf8.size();) {
    characters.push_back(plot::next_code_point(utf8, at));
  }
  return characters;
}

float Advances::width(std::string_view utf8) const {
  float sum = 0.0f;
  for (std::size_t at = 0; at < utf8.size();) {
    const auto found = known.find(plot::next_code_point(utf8, at));
    sum += found == known.end() ? other : found->second;
  }
  return sum;
}

// ---- lines ----

TokenRange TokenLines::line(Index i) const {
  const auto at = static_cast<std::size_t>(i);
  return {first[at], at + 1 < first.size() ? first[at + 1] : n_tokens()};
}

Index TokenLines::line_of(Index pos) const {
  const auto after = std::ranges::upper_bound(first, pos);
  return std::max<Index>(0, after - first.begin() - 1);
}

Index TokenLines::token_at(Index i, float at) const {
  if (i < 0 || i >= n_lines()) return -1;
  const TokenRange tokens = line(i);
  for (Index pos = tokens.begin; pos < tokens.end; ++pos) {
    const auto slot = static_cast<std::size_t>(pos);
    if (at >= x[slot] && at < x[slot] + widths[slot]) return pos;
  }
  return -1;
}

std::size_t TokenLines::bytes() const {
  return sizeof *this + first.size() * sizeof(Index) + (x.size() + widths.size()) * sizeof(float);
}

TokenLines break_lines(const TokenTexts& texts, const Advances& advances,
                       const LineRequest& request) {
  TokenLines lines;
  lines.width = request.width;
  const auto n = static_cast<std::size_t>(texts.size());
  lines.x.reserve(n);
  lines.widths.reserve(n);
  float x = 0.0f;
  Index word = 0;  // first token of the last word in the line
  bool is_joined = false;
  const auto begin_line = [&](Index pos) {
    lines.first.push_back(pos);
    word = pos;
    x = 0.0f;
  };
  for (Index pos = 0; pos < texts.size(); ++pos) {
    // A part of a character that stands elsewhere is a sliver that one can point at.
    // In right-to-left words, whose letters are joined, it is as narrow as can be, and no token has
    // a margin.
    const bool is_sliver = texts.text(pos).empty();
    if (!is_sliver) is_joined = texts.is_right_to_left(pos);
    const float margins = 2.0f * request.padding;
    const float width = advances.width(texts.text(pos)) + (is_joined ? 0.0f : margins) +
                        (is_sliver ? margins : 0.0f);
    if (pos == 0 || texts.ends_line(pos - 1)) {
      begin_line(pos);
    } else if (x > 0.0f && x + width > request.width) {
      const float word_x = lines.x[static_cast<std::size_t>(word)];
      const bool is_late = word_x > kLateInLine * request.width;
      if (texts.begins_word(pos) || word == lines.first.back() || !is_late) {
        begin_line(pos);
      } else {
        begin_line(word);
        for (Index moved = word; moved < pos; ++moved) {
          lines.x[static_cast<std::size_t>(moved)] = x;
          x += lines.widths[static_cast<std::size_t>(moved)];
        }
      }
    }
    if (texts.begins_word(pos)) word = pos;
    lines.x.push_back(x);
    lines.widths.push_back(width);
    x += width;
  }
  turn_lines(texts, lines);
  return lines;
}

}  // namespace kvscope::gui
