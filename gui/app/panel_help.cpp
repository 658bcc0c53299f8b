#include "gui/app/panel_help.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <string>

#include "gui/model/session/help_texts.hpp"
#include "gui/panels/landmarks.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

namespace {

void lines_of(std::string_view text, plot::Colour colour) {
  ImGui::PushStyleColor(ImGuiCol_Text, packed(colour));
  wrapped_words(text);
  ImGui::PopStyleColor();
}

/// The height that the texts take at this width.
float height_of(std::span<const HelpText> texts, float width) {
  float height = 0.0f;
  const float gap = ImGui::GetStyle().ItemSpacing.y;
  for (const HelpText& text : texts) {
    for (const std::string_view part : {text.title, text.formula, text.words, text.source}) {
      if (part.empty()) continue;
      height += ImGui::CalcTextSize(wrap_words(part, width).c_str()).y + gap;
    }
    height += 2 * gap;
  }
  return height;
}

}  // namespace

bool draw_panel_help(const PanelContext& context, std::string_view panel) {
  const std::span<const HelpText> texts = help_texts(panel);
  if (texts.empty()) return false;
  const Look& look = context.look;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float inset = look.px(10);
  const float wanted =
      height_of(texts, room.x - 2 * inset - ImGui::GetStyle().ScrollbarSize) + 2 * look.px(6);
  ImGui::PushStyleColor(ImGuiCol_ChildBg,
                        packed(plot::blend(plot::with_alpha(look.accent, 0.07), look.surface)));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {inset, look.px(6)});
  // The rest scrolls: a picture with its switches needs room beside its explanation.
  const float most = std::max(look.px(90), std::min(room.y * 0.5f, room.y - look.px(380)));
  ImGui::BeginChild("help", {0, std::min(wanted, most)}, false,
                    ImGuiWindowFlags_AlwaysUseWindowPadding | ImGuiWindowFlags_NavFlattened);
  for (const HelpText& text : texts) {
    lines_of(text.title, look.accent);
    if (!text.formula.empty()) {
      ImGui::Indent(look.px(12));
      lines_of(text.formula, look.ink);
      ImGui::Unindent(look.px(12));
    }
    lines_of(text.words, look.ink);
    if (!text.source.empty()) lines_of(text.source, look.muted);
    ImGui::Dummy({0, ImGui::GetStyle().ItemSpacing.y});
  }
  ImGui::EndChild();
  ImGui::PopStyleVar();
  ImGui::PopStyleColor();
  return true;
}

}  // namespace kvscope::gui
