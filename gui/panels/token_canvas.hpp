// Running text as it is drawn: shaded, underlined, framed; only the lines in sight.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "gui/model/tokens/token_lines.hpp"
#include "gui/model/tokens/token_reading.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/token_painter.hpp"

namespace kvscope::gui {

/// What the mouse did to the text in this frame.
struct TokenEvents {
  std::optional<Index> hovered;  // not while keys or the wheel are used and the mouse rests
  std::optional<Index> query;    // clicked, or walked to with the arrows
  std::optional<Index> key;      // right or Shift+click, or Shift and arrows
  bool has_walked = false;
};

class TokenCanvas {
 public:
  /// Room for the text in a window of this width, gutter and scrollbar left out.
  static float text_width(const PanelContext& context, float window_width, Index n_tokens);

  /// Fills the window. Scrolls to `show` if it is set and out of sight; lines of another width
  /// begin with the token that was at the top.
  TokenEvents draw(const PanelContext& context, const TokenTexts& texts, const TokenLines& lines,
                   const TokenMarks& marks, const UnderlineColours& colours,
                   std::optional<Index> show);

  /// Middles of the tokens that were in sight in the last frame, in pixels of the window.
  std::vector<std::pair<Index, ImVec2>> places(const TokenLines& lines) const;

 private:
  /// What arrows do while the mouse is over the text.
  void walk(const TokenLines& lines, const TokenMarks& marks, TokenEvents& events);
  /// To `show` if it is out of sight, or where lines of another width begin.
  void scroll_to_place(const TokenLines& lines, std::optional<Index> show, float line_height,
                       float room);
  /// What mouse and keys do. `at`: where the lines in sight begin, in pixels.
  TokenEvents take_events(const TokenLines& lines, const TokenMarks& marks, ImVec2 at, float room);

  // Of the last frame.
  ImVec2 origin_ = {0, 0};  // top left corner of the first line's text
  float line_height_ = 1.0f;
  Index first_ = 0;  // lines in sight
  Index last_ = 0;
  Index top_ = 0;                // the first token in sight
  float width_ = 0.0f;           // of its lines
  float room_ = 0.0f;            // its height
  bool scrolls_ = false;         // a scroll was asked for: it shows in the next frame
  std::optional<Index> anchor_;  // what was shown last, as long as it is in sight
  std::optional<ImVec2> rests_;  // where the mouse has stood since then
};

}  // namespace kvscope::gui
