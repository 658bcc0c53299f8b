#include "gui/panels/method_list.hpp"

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/figure_view.hpp"

namespace kvscope::gui {

namespace {

/// A piece of the curve: its dash and marker.
void draw_swatch(const PanelContext& context, const plot::SeriesStyle& style, bool has_marker,
                 ImVec2 at, ImVec2 size) {
  ImDrawList& list = *ImGui::GetWindowDrawList();
  const float width = context.look.px(1.6f);
  const float y = at.y + 0.5f * size.y;
  std::vector<double> pattern = plot::dash_pattern(style.dash, static_cast<double>(width));
  if (pattern.empty()) pattern.push_back(static_cast<double>(size.x));
  float x = 0.0f;
  for (std::size_t part = 0; x < size.x; ++part) {
    const float end = std::min(size.x, x + static_cast<float>(pattern[part % pattern.size()]));
    if (part % 2 == 0) list.AddLine({at.x + x, y}, {at.x + end, y}, packed(style.colour), width);
    x = end;
  }
  if (!has_marker) return;
  const ImVec2 middle{at.x + 0.5f * size.x, y};
  const float radius = context.look.px(3.2f);
  const auto outline = plot::marker_outline(style.marker);
  for (std::size_t i = 0; i < outline.size(); ++i) {
    const auto corner = [&](std::size_t k) {
      const plot::Point& p = outline[k % outline.size()];
      return ImVec2{middle.x + radius * static_cast<float>(p.x),
                    middle.y + radius * static_cast<float>(p.y)};
    };
    // every outline can be seen whole from its middle
    list.AddTriangleFilled(middle, corner(i), corner(i + 1), packed(style.colour));
  }
}

std::string help_of(const MethodItem& item) {
  std::string help = item.title.empty() ? item.name : item.title;
  if (!item.idea.empty()) help += "\n" + item.idea;
  if (item.spec != item.name && !item.spec.empty()) help += "\n" + item.spec.text();
  if (!item.obstacle.empty()) help += "\n\n" + item.obstacle;
  return help;
}

/// The method that is being typed: the registry's, of the last stage; null for none.
const SelectorEntry* typed_method(const std::string& typed) {
  const std::size_t stage = typed.rfind('+') == std::string::npos ? 0 : typed.rfind('+') + 1;
  const std::string name = typed.substr(stage, typed.find_first_of(":@", stage) - stage);
  for (const SelectorEntry& entry : selector_registry().entries()) {
    if (entry.name == name || entry.presets.contains(name)) return &entry;
  }
  return nullptr;
}

void draw_options(const PanelContext& context, const SelectorEntry& entry) {
  ImGui::PushStyleColor(ImGuiCol_Text, packed(context.look.muted));
  ImGui::PushTextWrapPos(0.0f);
  for (const SelectorOption& option : entry.options) {
    ImGui::TextUnformatted(
        fmt::format("{}={}  {}", option.name, option.default_value, option.help).c_str());
  }
  ImGui::PopTextWrapPos();
  ImGui::PopStyleColor();
}

}  // namespace

void method_field(PanelContext& context, MethodField& field) {
  ImGui::SetNextItemWidth(-1.0f);
  const bool entered = ImGui::InputTextWithHint("##method", "find, or add quest+every=4",
                                                &field.typed, ImGuiInputTextFlags_EnterReturnsTrue);
  landmark("method field");
  help_tooltip(
      "A part of a name narrows the list. A method as on the command line is added with Enter: "
      "options (quoka:n-queries=8), stacks (keydiff@tokens=2048+quest), wrappers (quest+every=4).");
  if (entered && !field.typed.empty()) {
    try {
      const MethodSpec spec(field.typed);
      context.session.set_ticked(spec.text(), true);
      context.session.select("method field", [&](Selection& s) { s.selector = spec; });
      field = {};
    } catch (const Error& e) {
      field.problem = e.what();
    }
  }
  if (field.typed.empty()) field.problem.clear();
  if (!field.problem.empty()) {
    coloured_words(context.look.error, field.problem);
  }
  if (const SelectorEntry* entry = typed_method(field.typed)) draw_options(context, *entry);
}

void method_list(PanelContext& context, const std::vector<MethodItem>& items,
                 const std::vector<plot::Tone>& tones, const std::string& part_of_name) {
  Session& session = context.session;
  FigureStyle figure_style;
  figure_style.ground = context.look.ground;
  const ScreenTheme theme = screen_theme(figure_style, context.fonts);
  const ImVec2 swatch{context.look.px(24), ImGui::GetFrameHeight()};
  const MethodSpec selected = session.selection().selector;
  std::size_t n_ticked = 0;
  bool is_below = false;  // the ticked ones
  for (const MethodItem& item : items) {
    if (!item.is_ticked && n_ticked > 0 && !is_below) {
      ImGui::Separator();
      is_below = true;
    }
    const bool is_narrowed = part_of_name.find_first_of(":+@") == std::string::npos;
    if (!item.is_ticked && is_narrowed && item.name.find(part_of_name) == std::string::npos)
      continue;
    const bool is_defined = item.obstacle.empty();
    ImGui::PushID(item.name.c_str());
    bool on = item.is_ticked;
    ImGui::BeginDisabled(!is_defined && !on);
    if (check_box("##on", &on)) session.set_ticked(item.name, on);
    ImGui::EndDisabled();
    help_tooltip(help_of(item));
    ImGui::SameLine(0, ImGui::GetStyle().ItemInnerSpacing.x);

    const ImVec2 at = ImGui::GetCursorScreenPos();
    if (item.is_ticked && n_ticked < tones.size() && is_defined) {
      const plot::Tone tone = tones[n_ticked];
      draw_swatch(context, theme.theme.style_of(tone), tone.role == plot::Role::series, at, swatch);
    }
    n_ticked += item.is_ticked;
    ImGui::Dummy(swatch);
    ImGui::SameLine(0, ImGui::GetStyle().ItemInnerSpacing.x);

    const bool is_selected = item.name == selected;
    const ImU32 ink = packed(is_selected  ? context.look.accent
                             : is_defined ? context.look.ink
                                          : context.look.muted);
    ImGui::PushStyleColor(ImGuiCol_Text, ink);
    ImGui::PushStyleColor(ImGuiCol_Header, IM_COL32(0, 0, 0, 0));
    ImGui::AlignTextToFramePadding();
    if (ImGui::Selectable(item.name.c_str(), is_selected)) {
      session.select("method list", [&](Selection& s) { s.selector = item.name; });
    }
    ImGui::PopStyleColor(2);
    pointing_line({.method = item.name});
    help_tooltip(help_of(item));
    ImGui::PopID();
  }
}

}  // namespace kvscope::gui
