#include "gui/panels/token_canvas.hpp"

#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "analysis/figures/selection.hpp"
#include "analysis/plot/theme.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"
#include "gui/render/fonts.hpp"

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
constexpr float kBelow = 7.0f;        // points under the letters, for underlines

float gutter_width(const PanelContext& context, Index n_tokens) {
  const std::string widest(fmt::format("{}", std::max<Index>(0, n_tokens - 1)).size(), '0');
  const ImFont* font = context.fonts.small();
  return font->CalcTextSizeA(font->FontSize, 1e6f, 0.0f, widest.c_str()).x + context.look.px(10);
}

/// Of ink and paper the one that can be read better on a ground.
Colour ink_on(const Look& look, Colour ground) {
  const double light = plot::luminance(ground);
  const auto contrast = [&](Colour colour) {
    const double other = plot::luminance(colour);
    return (std::max(light, other) + 0.05) / (std::min(light, other) + 0.05);
  };
  return contrast(look.ink) >= contrast(look.surface) ? look.ink : look.surface;
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

/// Everything that drawing one token needs.
struct Painter {
  const Look& look;
  ImDrawList* list;
  ImFont* font;
  const TokenMarks& marks;
  const UnderlineColours& colours;

  void draw(std::string_view text, Index pos, ImVec2 at, float width, bool hovered) const {
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
    Colour ink = ink_on(look, ground);
    if (!sees && !is_query) ink = blend(with_alpha(look.muted, 0.62), look.surface);
    const float padding = TokenCanvas::padding(look);
    list->AddText(font, font->FontSize, {at.x + padding, at.y}, packed(ink), text.data(),
                  text.data() + text.size());
    underlines(pos, sees, low, high);
    strikes(pos, low, high, height);
    frames(pos, low, high, hovered);
  }

  /// One of the reader's heaviest keys that a method drops: one line in red; where two methods are
  /// compared a line each in its colour, the first one above.
  void strikes(Index pos, ImVec2 low, ImVec2 high, float height) const {
    if (marks.reading == nullptr || !marks.reading->is_heavy(pos)) return;
    const bool compares = !marks.reading->other_fates.of.empty();
    const float thick = std::max(1.0f, look.px(1.4f));
    if (marks.reading->fates.at(pos) == KeyUse::dropped) {
      const float y = std::round(low.y + (compares ? 0.44f : 0.56f) * height);
      stroke_line(list, low.x, high.x, y, packed(compares ? colours.kept : look.error), thick,
                  Stroke::struck);
    }
    if (marks.reading->other_fates.at(pos) == KeyUse::dropped) {
      stroke_line(list, low.x, high.x, std::round(low.y + 0.66f * height), packed(colours.other),
                  thick, Stroke::dashed);
    }
  }

  void underlines(Index pos, bool sees, ImVec2 low, ImVec2 high) const {
    if (!sees || marks.reading == nullptr) return;
    const float thick = std::max(1.0f, std::round(look.px(1.6f)));
    const float y = high.y + look.px(1);
    const auto under = [&](KeyUse fate, float at, Colour colour, Stroke by_score) {
      if (fate != KeyUse::by_score && fate != KeyUse::by_rule) return;
      stroke_line(list, low.x, high.x, at, packed(colour), thick,
                  fate == KeyUse::by_rule ? Stroke::dotted : by_score);
    };
    under(marks.reading->fates.at(pos), y, colours.kept, Stroke::solid);
    under(marks.reading->other_fates.at(pos), y + thick + look.px(1), colours.other,
          Stroke::dashed);
  }

  void frames(Index pos, ImVec2 low, ImVec2 high, bool hovered) const {
    const float thick = look.px(1.6f);
    const ImVec2 a{low.x + 0.5f, low.y + 0.5f};
    const ImVec2 b{high.x - 0.5f, high.y - 0.5f};
    if (marks.found != nullptr && std::binary_search(marks.found->begin(), marks.found->end(),
                                                     static_cast<std::size_t>(pos))) {
      list->AddRect(a, b, packed(look.error), look.px(2), 0, look.px(1));
    }
    if (marks.key == pos) list->AddRect(a, b, packed(look.accent), look.px(2), 0, thick);
    const bool is_reader =
        marks.is_light && marks.reading != nullptr && marks.reading->reader() == pos;
    if (hovered || is_reader) list->AddRect(a, b, packed(look.ink), look.px(2));
  }
};

}  // namespace

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
  stroke_line(ImGui::GetWindowDrawList(), at.x, at.x + width, y, packed(colour), thick, stroke);
}

void TokenCanvas::walk(const TokenLines& lines, const TokenMarks& marks, TokenEvents& events) {
  const ImGuiIO& io = ImGui::GetIO();
  claim_arrows();
  if (io.WantTextInput || io.KeyCtrl || io.KeyAlt) return;
  const auto pressed = [](int key) { return ImGui::IsKeyPressed(key, /*repeat=*/true); };
  const Index right = (pressed(GLFW_KEY_RIGHT) ? 1 : 0) - (pressed(GLFW_KEY_LEFT) ? 1 : 0);
  const Index down = (pressed(GLFW_KEY_DOWN) ? 1 : 0) - (pressed(GLFW_KEY_UP) ? 1 : 0);
  if (right == 0 && down == 0) return;
  const Index from = io.KeyShift ? marks.key.value_or(marks.query) : marks.query;
  Index to = std::clamp<Index>(from + right, 0, lines.n_tokens() - 1);
  const Index line = std::clamp<Index>(lines.line_of(from) + down, 0, lines.n_lines() - 1);
  if (down != 0 && line != lines.line_of(from)) {
    // Of the next line the token at the same place, or its last one.
    const Index there = lines.token_at(line, lines.x[static_cast<std::size_t>(from)] + 1.0f);
    to = there >= 0 ? there : lines.line(line).end - 1;
  }
  (io.KeyShift ? events.key : events.query) = to;
  events.has_walked = true;
  rests_ = io.MousePos;
}

float TokenCanvas::text_width(const PanelContext& context, float window_width, Index n_tokens) {
  return window_width - gutter_width(context, n_tokens) - ImGui::GetStyle().ScrollbarSize -
         context.look.px(4);
}

TokenEvents TokenCanvas::draw(const PanelContext& context, const TokenTexts& texts,
                              const TokenLines& lines, const TokenMarks& marks,
                              const UnderlineColours& colours, std::optional<Index> show) {
  const Look& look = context.look;
  TokenEvents events;
  ImFont* font = context.fonts.body();
  const float line_height = std::round(font->FontSize + look.px(kBelow));
  // Whole lines only: none is cut at the edge as long as nobody scrolls by hand.
  const float whole = std::floor(ImGui::GetContentRegionAvail().y / line_height) * line_height;
  const float room = std::max(line_height, whole);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {0, 0});
  ImGui::BeginChild("text", {0, room}, false, ImGuiWindowFlags_NoNav);
  // Lines of another width, or a window that another layout begins at the top.
  const bool is_new_place = width_ > 0.0f && (width_ != lines.width || ImGui::IsWindowAppearing());
  if (!show && is_new_place) show = anchor_;
  scrolls_ = false;
  const auto scroll_to = [&](float y) {
    ImGui::SetScrollY(std::max(0.0f, y));
    scrolls_ = true;
  };
  if (show && *show < lines.n_tokens()) {
    anchor_ = show;
    const float y = static_cast<float>(lines.line_of(*show)) * line_height;
    const float now = ImGui::GetScrollY();
    if (y < now || y + line_height > now + room) {
      scroll_to(y - std::floor(0.4f * room / line_height) * line_height);
    }
  } else if (is_new_place) {
    scroll_to(static_cast<float>(lines.line_of(top_)) * line_height);
  }
  const ImVec2 at = ImGui::GetCursorScreenPos();  // of the first line, above the window if scrolled
  const float scroll = ImGui::GetScrollY();
  const float gutter = gutter_width(context, lines.n_tokens());
  const float left = at.x + gutter;

  const float width = std::max(1.0f, ImGui::GetContentRegionAvail().x);
  ImGui::SetCursorScreenPos({at.x, at.y + scroll});
  ImGui::InvisibleButton("tokens", {width, std::max(1.0f, room)},
                         ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight);
  if (ImGui::IsItemHovered()) {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    walk(lines, marks, events);
    if (ImGui::GetIO().MouseWheel != 0.0f) rests_ = mouse;
    if (rests_ && (rests_->x != mouse.x || rests_->y != mouse.y)) rests_.reset();
    const auto line = static_cast<Index>((mouse.y - at.y) / line_height);
    const Index pos = lines.token_at(line, mouse.x - left);
    if (pos >= 0) {
      if (!rests_) events.hovered = pos;
      const bool with_shift = ImGui::GetIO().KeyShift;
      const bool is_left = ImGui::IsMouseClicked(ImGuiMouseButton_Left);
      if (is_left && !with_shift) events.query = pos;
      if ((is_left && with_shift) || ImGui::IsMouseClicked(ImGuiMouseButton_Right)) {
        events.key = pos;
      }
    }
  }
  ImGui::SetCursorScreenPos({at.x, at.y});
  ImGui::Dummy({1.0f, static_cast<float>(lines.n_lines()) * line_height});

  ImDrawList* list = ImGui::GetWindowDrawList();
  const Painter painter{look, list, font, marks, colours};
  ImFont* small = context.fonts.small();
  const auto first = std::max<Index>(0, static_cast<Index>(scroll / line_height));
  const auto last =
      std::min(lines.n_lines(), static_cast<Index>((scroll + room) / line_height) + 1);
  origin_ = {left, at.y};
  line_height_ = line_height;
  first_ = first;
  last_ = last;
  if (!scrolls_ && first < lines.n_lines()) {
    top_ = lines.line(first).begin;
    const Index line = anchor_ ? lines.line_of(*anchor_) : 0;
    if (line < first || line >= last) anchor_.reset();
  }
  width_ = lines.width;
  for (Index line = first; line < last; ++line) {
    const TokenRange tokens = lines.line(line);
    const float y = std::round(at.y + static_cast<float>(line) * line_height);
    const std::string number = fmt::format("{}", tokens.begin);
    const float number_width = small->CalcTextSizeA(small->FontSize, 1e6f, 0.0f, number.c_str()).x;
    list->AddText(small, small->FontSize, {left - look.px(8) - number_width, y + look.px(2)},
                  packed(look.muted), number.c_str());
    for (Index pos = tokens.begin; pos < tokens.end; ++pos) {
      const auto slot = static_cast<std::size_t>(pos);
      painter.draw(texts.text(pos), pos, {left + lines.x[slot], y}, lines.widths[slot],
                   events.hovered == pos);
      const auto& flags = marks.bookmarked;
      if (std::find(flags.begin(), flags.end(), pos) == flags.end()) continue;
      const ImVec2 flag{left + lines.x[slot], y};
      const float side = look.px(6);
      list->AddTriangleFilled(flag, {flag.x + side, flag.y}, {flag.x, flag.y + side},
                              packed(look.accent));
    }
  }
  ImGui::EndChild();
  ImGui::PopStyleVar();
  return events;
}

std::vector<std::pair<Index, ImVec2>> TokenCanvas::places(const TokenLines& lines) const {
  std::vector<std::pair<Index, ImVec2>> places;
  for (Index line = first_; line < std::min(last_, lines.n_lines()); ++line) {
    const TokenRange tokens = lines.line(line);
    for (Index pos = tokens.begin; pos < tokens.end; ++pos) {
      const auto slot = static_cast<std::size_t>(pos);
      places.emplace_back(pos,
                          ImVec2{origin_.x + lines.x[slot] + 0.5f * lines.widths[slot],
                                 origin_.y + (static_cast<float>(line) + 0.4f) * line_height_});
    }
  }
  return places;
}

}  // namespace kvscope::gui
