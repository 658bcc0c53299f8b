#include "gui/panels/token_canvas.hpp"

#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "gui/panels/widgets.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

namespace {

constexpr float kBelow = 7.0f;  // points under the letters, for underlines

float gutter_width(const PanelContext& context, Index n_tokens) {
  const std::string widest(fmt::format("{}", std::max<Index>(0, n_tokens - 1)).size(), '0');
  const ImFont* font = context.fonts.small();
  return font->CalcTextSizeA(font->FontSize, 1e6f, 0.0f, widest.c_str()).x + context.look.px(10);
}

}  // namespace

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
}

float TokenCanvas::text_width(const PanelContext& context, float window_width, Index n_tokens) {
  return window_width - gutter_width(context, n_tokens) - ImGui::GetStyle().ScrollbarSize -
         context.look.px(4);
}

void TokenCanvas::scroll_to_place(const TokenLines& lines, std::optional<Index> show,
                                  float line_height, float room) {
  // Lines of another width, or a window that another layout begins at the top.
  const bool is_new_place = width_ > 0.0f && (width_ != lines.width || ImGui::IsWindowAppearing());
  // A lower window keeps in sight what it showed.
  const float anchor_y =
      anchor_ && *anchor_ < lines.n_tokens()
          ? static_cast<float>(lines.line_of(*anchor_)) * line_height - ImGui::GetScrollY()
          : -1.0f;
  const bool would_hide = room < room_ && anchor_y >= 0.0f && anchor_y + line_height <= room_;
  if (!show && (is_new_place || would_hide)) show = anchor_;
  room_ = room;
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
}

TokenEvents TokenCanvas::take_events(const TokenLines& lines, const TokenMarks& marks, ImVec2 at,
                                     float room) {
  TokenEvents events;
  // Whoever types, walks or turns the wheel points at nothing, wherever the mouse lies.
  const auto& keys = ImGui::GetIO().KeysDownDuration;
  const bool has_pressed =
      std::any_of(std::begin(keys), std::end(keys), [](float t) { return t == 0.0f; });
  if (has_pressed || ImGui::GetIO().MouseWheel != 0.0f || ImGui::IsWindowAppearing())
    rests_ = ImGui::GetIO().MousePos;

  const float width = std::max(1.0f, ImGui::GetContentRegionAvail().x);
  ImGui::SetCursorScreenPos(at);
  ImGui::InvisibleButton("tokens", {width, std::max(1.0f, room)},
                         ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight);
  if (ImGui::IsItemHovered()) {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    walk(lines, marks, events);
    if (rests_ && (rests_->x != mouse.x || rests_->y != mouse.y)) rests_.reset();
    const auto line = static_cast<Index>((mouse.y - origin_.y) / line_height_);
    const Index pos = lines.token_at(line, mouse.x - origin_.x);
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
  return events;
}

TokenEvents TokenCanvas::draw(const PanelContext& context, const TokenTexts& texts,
                              const TokenLines& lines, const TokenMarks& marks,
                              const UnderlineColours& colours, std::optional<Index> show) {
  const Look& look = context.look;
  ImFont* font = context.fonts.body();
  const float line_height = std::round(font->FontSize + look.px(kBelow));
  // Whole lines only: none is cut at the edge as long as nobody scrolls by hand.
  const float whole = std::floor(ImGui::GetContentRegionAvail().y / line_height) * line_height;
  const float room = std::max(line_height, whole);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {0, 0});
  ImGui::BeginChild("text", {0, room}, false, ImGuiWindowFlags_NoNav);
  scroll_to_place(lines, show, line_height, room);
  const ImVec2 at = ImGui::GetCursorScreenPos();  // of the first line, above the window if scrolled
  const float scroll = ImGui::GetScrollY();
  const float gutter = gutter_width(context, lines.n_tokens());
  const float left = at.x + gutter;

  origin_ = {left, at.y};
  line_height_ = line_height;
  const TokenEvents events = take_events(lines, marks, {at.x, at.y + scroll}, room);
  ImGui::SetCursorScreenPos({at.x, at.y});
  ImGui::Dummy({1.0f, static_cast<float>(lines.n_lines()) * line_height});

  ImDrawList* list = ImGui::GetWindowDrawList();
  const TokenPainter painter{look, list, font, marks, colours};
  ImFont* small = context.fonts.small();
  const auto first = std::max<Index>(0, static_cast<Index>(scroll / line_height));
  const auto last =
      std::min(lines.n_lines(), static_cast<Index>((scroll + room) / line_height) + 1);
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
                   events.hovered == pos || pointed().query == pos || pointed().has_key(pos));
      const auto& flags = marks.bookmarked;
      if (std::ranges::find(flags, pos) == flags.end()) continue;
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
