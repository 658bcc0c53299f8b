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
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const auto square = [&](float half, ImU32 colour) {
    list.AddRectFilled({at->x - half, at->y - half}, {at->x + half, at->y + half}, colour);
  };
  square(context_.look.px(3.2f), packed(context_.look.surface));
  square(context_.look.px(2.2f), colour_);
}

void AccentMarks::cross(double x, double y) {
  const auto at = view_.place(panel_, x, y);
  if (!is_drawn_ || !at) return;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const float arm = context_.look.px(4.5f);
  for (const float width : {context_.look.px(4.0f), context_.look.px(1.6f)}) {
    const ImU32 colour = width > arm / 2 ? packed(context_.look.surface) : colour_;
    list.AddLine({at->x - arm, at->y}, {at->x + arm, at->y}, colour, width);
    list.AddLine({at->x, at->y - arm}, {at->x, at->y + arm}, colour, width);
  }
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
  const auto edge = *view_.frame(panel_);  // where half of a line would be cut off
  const float half = context_.look.px(1.0f);
  const ImVec2 low{std::max(std::min(a->x, b->x) + in, edge.low.x + half),
                   std::max(std::min(a->y, b->y) + in, edge.low.y + half)};
  const ImVec2 high{std::min(std::max(a->x, b->x) - in, edge.high.x - half),
                    std::min(std::max(a->y, b->y) - in, edge.high.y - half)};
  if (low.x > high.x || low.y > high.y) return;  // out of sight
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.AddRect(low, high, packed(context_.look.surface), 0.0f, 0, context_.look.px(4.0f));
  list.AddRect(low, high, colour_, 0.0f, 0, context_.look.px(2.0f));
}

void frame_heads(const PanelContext& context, const FigureView& view, const CellOfHead& cell_of,
                 float inset) {
  const auto frame = [&](const CellOfHead::result_type& cell, plot::Colour colour) {
    if (cell) AccentMarks(context, view, 0, colour).frame(cell->first, cell->second, inset);
  };
  const auto document = context.session.document();
  const Pointed& at = pointed();
  if (document && at.is_of_heads()) {  // a whole layer, or a head in all of them, too
    CellOfHead::result_type all;
    const auto widen = [](plot::Range a, plot::Range b) {
      return plot::Range{std::min({a.low, a.high, b.low, b.high}),
                         std::max({a.low, a.high, b.low, b.high})};
    };
    for (const Index layer : document->info().layers) {
      for (const Index q_head : document->info().q_heads) {
        if (at.layer.value_or(layer) != layer || at.q_head.value_or(q_head) != q_head) continue;
        const auto cell = cell_of(layer, q_head);
        if (!cell) continue;
        all = all ? std::pair(widen(all->first, cell->first), widen(all->second, cell->second))
                  : *cell;
      }
    }
    frame(all, context.look.ink);
  }
  const Selection& selection = context.session.selection();
  frame(cell_of(selection.layer, selection.q_head), context.look.accent);
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
