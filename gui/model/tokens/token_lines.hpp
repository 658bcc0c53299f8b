// The text of a trace in running lines: what every token shows, where lines break, which token lies
// at a place.
//
// Letters are measured by a table of advances that the caller makes of its font, so that lines are
// broken on a worker thread.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gui/model/jobs/jobs.hpp"
#include "gui/model/traces/document.hpp"

namespace kvscope::gui {

/// What every token shows: drawable() of its bytes, spaces that stand alone or in rows as middle
/// dots, "id 1234" without recorded text. A character that is split between tokens stands in the
/// one in which it begins, and the others show nothing; right-to-left letters stand as they are
/// drawn.
class TokenTexts {
 public:
  /// Throws Interrupted when stopped.
  static TokenTexts of(const Document& document, JobContext& job);

  Index size() const { return static_cast<Index>(begin_.size()) - 1; }
  std::string_view text(Index pos) const {
    const auto i = static_cast<std::size_t>(pos);
    return std::string_view(all_).substr(begin_[i], begin_[i + 1] - begin_[i]);
  }
  /// A line ends after this token: it holds a line break.
  bool ends_line(Index pos) const { return ends_line_[static_cast<std::size_t>(pos)]; }
  /// A word begins with this token: it starts with a space.
  bool begins_word(Index pos) const { return begins_word_[static_cast<std::size_t>(pos)]; }
  /// It is read from right to left, as its neighbours in the line.
  bool is_right_to_left(Index pos) const { return right_to_left_[static_cast<std::size_t>(pos)]; }
  /// Letters that are read from left to right: a stretch of right-to-left tokens ends before it.
  bool has_other_letters(Index pos) const { return other_letters_[static_cast<std::size_t>(pos)]; }
  /// Every character that occurs once, as UTF-8: what the font must have.
  const std::string& alphabet() const { return alphabet_; }
  std::size_t bytes() const;

 private:
  void add(std::string_view text, bool ends_line, char32_t before, char32_t after);
  std::string all_;
  std::vector<std::size_t> begin_ = {0};
  std::vector<bool> ends_line_;
  std::vector<bool> begins_word_;
  std::vector<bool> right_to_left_;
  std::vector<bool> other_letters_;
  std::string alphabet_;
};

/// The characters of UTF-8 text; U+FFFD for bytes that are none.
std::vector<char32_t> characters_of(std::string_view utf8);

/// Advance width in pixels of every character of an alphabet, and of all others.
struct Advances {
  std::unordered_map<char32_t, float> known;
  float other = 0.0f;
  float width(std::string_view utf8) const;
};

/// How lines are broken: pixels.
struct LineRequest {
  float width = 0.0f;    // of a line
  float padding = 0.0f;  // around every token, on both sides
};

/// Where every token lies: line by line, from the left edge of the text.
struct TokenLines {
  std::vector<Index> first;   // [n_lines] first token of each line
  std::vector<float> x;       // [n_tokens] left edge of the token within its line; ascending but
                              // where tokens are read from right to left
  std::vector<float> widths;  // [n_tokens], padding included
  float width = 0.0f;         // the line that was asked for

  Index n_lines() const { return static_cast<Index>(first.size()); }
  Index n_tokens() const { return static_cast<Index>(x.size()); }
  /// Tokens of a line.
  TokenRange line(Index i) const;
  Index line_of(Index pos) const;
  /// The token in a line at x pixels from the left edge; -1 beside the text.
  Index token_at(Index line, float x) const;
  std::size_t bytes() const;
};

/// Lines break between tokens: after line breaks of the text, and where the next token would not
/// fit, there before the last word if it begins in the last third of the line. A token that is
/// wider than a line has one of its own.
TokenLines break_lines(const TokenTexts& texts, const Advances& advances,
                       const LineRequest& request);

}  // namespace kvscope::gui
