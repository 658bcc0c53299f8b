// Token texts on the axes of an attention map that is zoomed far in.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "gui/model/traces/trace_facts.hpp"
#include "gui/panels/attention_map_view.hpp"
#include "gui/render/colour.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

namespace {

float width_of(ImFont* font, std::string_view text) {
  return font->CalcTextSizeA(font->FontSize, FLT_MAX, 0.0f, text.data(), text.data() + text.size())
      .x;
}

std::string fitting_text(ImFont* font, const std::string& text, float room) {
  return shortened_middle(text,
                          [&](std::string_view part) { return width_of(font, part) <= room; });
}

}  // namespace

void AttentionMapView::draw_token_texts(const PanelContext& context, const MapView& view) const {
  const auto document = context.session.document();
  if (!document) return;
  const Look& look = context.look;
  ImDrawList& list = *ImGui::GetWindowDrawList();
  ImFont* font = context.fonts.small();
  const Selection& selection = context.session.selection();
  const float gap = look.px(5);
  const float room = text_room_ - gap;
  const auto draw = [&](ImVec2 at, ImU32 ink, const std::string& text) {
    list.AddText(font, font->FontSize, at, ink, text.data(), text.data() + text.size());
  };
  const auto ink_of = [&](bool is_selected) {
    return packed(is_selected ? look.accent : look.ink);
  };
  const TokenRange queries = view.queries();
  for (Index query = queries.begin; query < queries.end; ++query) {
    const float y = low_.y + static_cast<float>(view.y_of(static_cast<double>(query) + 0.5));
    if (y < low_.y || y > high_.y) continue;
    const std::string text = fitting_text(font, document->token_text(query), room);
    draw({std::round(low_.x - gap - width_of(font, text)), std::round(y - font->FontSize / 2)},
         ink_of(query == selection.query), text);
  }
  const TokenRange keys = view.keys();
  list.PushClipRectFullScreen();  // letters are turned by turning their corners
  for (Index key = keys.begin; key < keys.end; ++key) {
    const float x = low_.x + static_cast<float>(view.x_of(static_cast<double>(key) + 0.5));
    if (x < low_.x || x > high_.x) continue;
    const std::string text = fitting_text(font, document->token_text(key), room);
    // Upwards, ending at the axis.
    const ImVec2 at{std::round(x - font->FontSize / 2),
                    std::round(high_.y + gap + width_of(font, text))};
    const int first = list.VtxBuffer.Size;
    draw(at, ink_of(selection.key == key), text);
    for (int i = first; i < list.VtxBuffer.Size; ++i) {
      ImVec2& corner = list.VtxBuffer[i].pos;
      corner = {at.x + (corner.y - at.y), at.y - (corner.x - at.x)};
    }
  }
  list.PopClipRect();
}

}  // namespace kvscope::gui
