// One token of running text as it is drawn: shaded, underlined, struck out, framed.
#pragma once

#include <imgui.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/plot/colour.hpp"
#include "gui/model/session/session.hpp"
#include "gui/model/tokens/token_reading.hpp"
#include "gui/render/look.hpp"

namespace kvscope::gui {

/// What is shown of the tokens. Pointers may be null: nothing is shown of that.
struct TokenMarks {
  Index query = 0;
  std::optional<Index> key;
  TokenRange visible;  // what is shaded; others are muted
  /// Underlines its keys by how methods keep them, and strikes out the heavy ones that are dropped.
  const Reading* reading = nullptr;
  bool is_light = false;  // the shading is what a token under the mouse reads
  const Shading* shading = nullptr;
  const std::vector<std::size_t>* found = nullptr;
  std::vector<Index> bookmarked;  // queries and keys of the head's bookmarks: flagged
  const Brush* brush = nullptr;   // a bar above
};

/// How the two underlines look: colour, and dashes for the second. Keys that are kept by rule have
/// dots in both.
struct UnderlineColours {
  plot::Colour kept;
  plot::Colour other;
};
UnderlineColours underline_colours(const Look& look, const std::string& method,
                                   const std::string& other);

enum class Stroke { solid, dashed, dotted, struck };
/// A sample of an underline, as an item of one line's height.
void underline_sample(const Look& look, plot::Colour colour, Stroke stroke);

/// Draws one token with its shade, underlines, strokes and frames.
struct TokenPainter {
  const Look& look;
  ImDrawList* list;
  ImFont* font;
  const TokenMarks& marks;
  const UnderlineColours& colours;

  static float padding(const Look& look) { return look.px(0.5f); }
  void draw(std::string_view text, Index pos, ImVec2 at, float width, bool is_pointed) const;

 private:
  void strikes(Index pos, ImVec2 low, ImVec2 high, float height) const;
  void underlines(Index pos, bool sees, ImVec2 low, ImVec2 high) const;
  void frames(Index pos, ImVec2 low, ImVec2 high, bool is_pointed) const;
};

}  // namespace kvscope::gui
