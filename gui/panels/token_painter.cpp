#include "gui/panels/token_painter.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/figures/selection.hpp"
#include "analysis/plot/theme.hpp"

namespace kvscope::gui {

namespace {

using plot::blend;
using plot::Colour;
using plot::with_alpha;

// Orange and sky blue stay apart for every kind of colour blindness.
constexpr Colour kHeat = plot::colour_from_rgb(0xE69F00);
constexpr Colour kLight = plot::colour_from_rgb(0x56B4E9);
constexpr double kMostHeat = 0.9;     // opacity of a full shade
constexpr double kLeastShade = 0.02;  // below: not drawn

/// Of ink and paper the one that can be read better on a ground.
Colour ink_on(const Look& look, Colour ground) {
  return plot::contrast(look.ink, ground) >= plot::contrast(look.surface, ground) ? look.ink
                                                                                  : look.surface;
}

void stroke_line(ImDrawList* list, float x0, float x1, float y, ImU32 colour, float thickness,
                 Stroke stroke) {
  if (stroke == Stroke::solid || stroke == Stroke::struck) {
    list->AddRectFilled({x0, y}, {x1, y + thickness}, colour);
    return;
  }
  const float dash = (stroke == Stroke::dashed ? 3.0f : 1.0f) * thickness;
  const float step = dash + (stroke == Stroke::dashed ? 3.0f : 1.6f) * thickness;
  for (float x = x0; x < x1; x += step) {
    list->AddRectFilled({x, y}, {std::min(x + dash, x1), y + thickness}, colour);
  }
}

}  // namespace

void TokenPainter::draw(std::string_view text, Index pos, ImVec2 at, float width,
                        bool is_pointed) const {
  const float height = font->FontSize;
  const ImVec2 low{at.x, at.y};
  const ImVec2 high{at.x + width, at.y + height + look.px(1)};
  const bool is_query = pos == marks.query;
  const bool sees = pos >= marks.visible.begin && pos < marks.visible.end;
  Colour ground = look.surface;
  const double shade = marks.shading != nullptr && sees ? marks.shading->shade(pos) : 0.0;
  if (is_query) {
    ground = look.accent;
  } else if (std::abs(shade) > kLeastShade) {
    const Colour colour = marks.is_light || shade < 0.0 ? kLight : kHeat;
    ground = blend(with_alpha(colour, kMostHeat * std::abs(shade)), look.surface);
  }
  if (is_query || std::abs(shade) > kLeastShade) list->AddRectFilled(low, high, packed(ground));
  if (marks.shading != nullptr && sees && marks.shading->is_masked(pos) && !is_query) {
    list->AddRect(low, high, packed(look.line));
  }
  if (marks.brush != nullptr && marks.brush->has(pos))
    list->AddRectFilled(low, {high.x, low.y + std::round(look.px(2.4f))}, packed(look.accent));
  Colour ink = ink_on(look, ground);
  if (!sees && !is_query) ink = blend(with_alpha(look.muted, 0.62), look.surface);
  list->AddText(font, font->FontSize, {at.x + padding(look), at.y}, packed(ink), text.data(),
                text.data() + text.size());
  underlines(pos, sees, low, high);
  strikes(pos, low, high, height);
  frames(pos, low, high, is_pointed);
}

/// One of the reader's heaviest keys that a method drops: one line in red; where two methods are
/// compared a line each in its colour, the first one above.
void TokenPainter::strikes(Index pos, ImVec2 low, ImVec2 high, float height) const {
  if (marks.reading == nullptr || !marks.reading->is_heavy(pos)) return;
  const bool compares = !marks.reading->other_outcomes.of.empty();
  const float thick = std::max(1.0f, look.px(1.4f));
  if (marks.reading->outcomes.at(pos) == KeyUse::dropped) {
    const float y = std::round(low.y + (compares ? 0.44f : 0.56f) * height);
    stroke_line(list, low.x, high.x, y, packed(compares ? colours.kept : look.error), thick,
                Stroke::struck);
  }
  if (marks.reading->other_outcomes.at(pos) == KeyUse::dropped) {
    stroke_line(list, low.x, high.x, std::round(low.y + 0.66f * height), packed(colours.other),
                thick, Stroke::dashed);
  }
}

void TokenPainter::underlines(Index pos, bool sees, ImVec2 low, ImVec2 high) const {
  if (!sees || marks.reading == nullptr) return;
  const float thick = std::max(1.0f, std::round(look.px(1.6f)));
  const float y = high.y + look.px(1);
  const auto under = [&](KeyUse outcome, float at, Colour colour, Stroke by_score) {
    if (outcome != KeyUse::by_score && outcome != KeyUse::by_rule) return;
    stroke_line(list, low.x, high.x, at, packed(colour), thick,
                outcome == KeyUse::by_rule ? Stroke::dotted : by_score);
  };
  under(marks.reading->outcomes.at(pos), y, colours.kept, Stroke::solid);
  under(marks.reading->other_outcomes.at(pos), y + thick + look.px(1), colours.other,
        Stroke::dashed);
}

void TokenPainter::frames(Index pos, ImVec2 low, ImVec2 high, bool is_pointed) const {
  const float thick = look.px(1.6f);
  const ImVec2 a{low.x + 0.5f, low.y + 0.5f};
  const ImVec2 b{high.x - 0.5f, high.y - 0.5f};
  if (marks.found != nullptr &&
      std::ranges::binary_search(*marks.found, static_cast<std::size_t>(pos))) {
    list->AddRect(a, b, packed(look.error), look.px(2), 0, look.px(1));
  }
  if (marks.key == pos) list->AddRect(a, b, packed(look.accent), look.px(2), 0, thick);
  const bool is_reader =
      marks.is_light && marks.reading != nullptr && marks.reading->reader() == pos;
  if (is_pointed || is_reader) list->AddRect(a, b, packed(look.ink), look.px(2), 0, look.px(1.4f));
}

UnderlineColours underline_colours(const Look& look, const std::string& method,
                                   const std::string& other) {
  const plot::Theme theme = plot::make_theme(plot::Venue::acl, look.ground);
  const figures::MethodTones tones({method, other});
  return {theme.style_of(tones.of(method)).colour, theme.style_of(tones.of(other)).colour};
}

void underline_sample(const Look& look, Colour colour, Stroke stroke) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = look.px(16);
  ImGui::Dummy({width, ImGui::GetTextLineHeight()});
  const float thick = std::max(1.0f, std::round(look.px(1.6f)));
  const float y = at.y + 0.6f * ImGui::GetTextLineHeight();
  if (stroke == Stroke::struck)
    ImGui::GetWindowDrawList()->AddText({at.x, at.y + look.px(2)}, packed(look.muted), "ab");
  stroke_line(ImGui::GetWindowDrawList(), at.x, at.x + width, y, packed(colour), thick, stroke);
}

}  // namespace kvscope::gui
