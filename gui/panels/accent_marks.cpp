#include "gui/panels/accent_marks.hpp"

#include <imgui.h>

#include <algorithm>

#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

/// From the left edge to the words.
float indent() {
  return ImGui::GetTextLineHeight() * 0.8f;
}

}  // namespace

AccentMarks::AccentMarks(const PanelContext& context, const FigureView& view, std::size_t panel,
                         plot::Colour colour)
    : context_(context), view_(view), panel_(panel), colour_(packed(colour)) {
  const auto frame = view.frame(panel);
  if (!frame) return;
  is_drawn_ = true;
  ImGui::GetWindowDrawList()->PushClipRect(frame->low, frame->high, /*intersect=*/true);
}

AccentMarks::~AccentMarks() {
  if (is_drawn_) ImGui::GetWindowDrawList()->PopClipRect();
}

void AccentMarks::dot(double x, double y) {
  const auto at = view_.place(panel_, x, y);
  if (!is_drawn_ || !at) return;
  const float half = context_.look.px(1.6f);
  ImGui::GetWindowDrawList()->AddRectFilled({at->x - half, at->y - half},
                                            {at->x + half, at->y + half}, colour_);
}

void AccentMarks::ring(double x, double y) {
  const auto at = view_.place(panel_, x, y);
  if (!is_drawn_ || !at) return;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const float radius = context_.look.px(7.0f);
  list.AddCircle(*at, radius, packed(context_.look.surface), 0, context_.look.px(4.5f));
  list.AddCircle(*at, radius, colour_, 0, context_.look.px(2.5f));
}

void AccentMarks::frame(plot::Range x, plot::Range y, float inset) {
  const auto a = view_.place(panel_, x.low, y.low);
  const auto b = view_.place(panel_, x.high, y.high);
  if (!is_drawn_ || !a || !b) return;
  const float in = context_.look.px(inset);
  const ImVec2 low{std::min(a->x, b->x) + in, std::min(a->y, b->y) + in};
  const ImVec2 high{std::max(a->x, b->x) - in, std::max(a->y, b->y) - in};
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.AddRect(low, high, packed(context_.look.surface), 0.0f, 0, context_.look.px(4.0f));
  list.AddRect(low, high, colour_, 0.0f, 0, context_.look.px(2.0f));
}

void frame_heads(const PanelContext& context, const FigureView& view, const CellOfHead& cell_of,
                 float inset) {
  const auto frame = [&](Index layer, Index q_head, plot::Colour colour) {
    const auto cell = cell_of(layer, q_head);
    if (cell) AccentMarks(context, view, 0, colour).frame(cell->first, cell->second, inset);
  };
  if (pointed().has_head()) frame(*pointed().layer, *pointed().q_head, context.look.ink);
  const Selection& selection = context.session.selection();
  frame(selection.layer, selection.q_head, context.look.accent);
}

void accent_words(const PanelContext& context, const std::string& words) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float side = ImGui::GetTextLineHeight() * 0.5f;
  ImGui::GetWindowDrawList()->AddRectFilled(
      {at.x, at.y + side * 0.5f}, {at.x + side, at.y + side * 1.5f}, packed(context.look.accent));
  ImGui::SetCursorScreenPos({at.x + indent(), at.y});
  wrapped_words(words);
}

float accent_words_height(const std::string& words) {
  const float width = std::max(1.0f, ImGui::GetContentRegionAvail().x - indent());
  return ImGui::CalcTextSize(wrap_words(words, width).c_str()).y + ImGui::GetStyle().ItemSpacing.y;
}

}  // namespace kvscope::gui
