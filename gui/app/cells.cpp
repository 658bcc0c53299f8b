#include "gui/app/cells.hpp"

#include <imgui.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "gui/app/help.hpp"
#include "gui/model/session/help_texts.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

constexpr float kBar = 5.0f;      // points between panels
constexpr float kLeast = 140.0f;  // points that a panel keeps

Panel* find(const Cells::Panels& panels, const std::string& name) {
  for (const auto& panel : panels) {
    if (panel->info().name == name) return panel.get();
  }
  return nullptr;
}

}  // namespace

void Cells::draw(PanelContext& context, const Panels& panels, Place& root, const Area& area) {
  changed_ = false;
  areas_.clear();
  if (!maximised_.empty() && find(panels, maximised_) != nullptr) {
    if (alone_.panel != maximised_) alone_ = panel_place(maximised_);
    draw_cell(context, panels, alone_, area);
    // Another panel may have been chosen in its title, or the way back to the layout.
    if (!maximised_.empty() && alone_.panel != maximised_) maximised_ = alone_.panel;
    return;
  }
  Arranged arranged = arrange(root, area, context.look.px(kBar), context.look.px(kLeast));
  for (Splitter& splitter : arranged.splitters) draw_splitter(context, splitter);
  for (PlacedPanel& placed : arranged.panels) {
    draw_cell(context, panels, *placed.leaf, placed.area);
  }
}

void Cells::draw_splitter(PanelContext& context, Splitter& splitter) {
  const bool sideways = splitter.split->kind == Place::Kind::columns;
  ImGui::PushID(splitter.split);
  ImGui::SetCursorScreenPos({splitter.area.x, splitter.area.y});
  ImGui::InvisibleButton("bar", {std::max(1.0f, splitter.area.w), std::max(1.0f, splitter.area.h)});
  const bool hot = ImGui::IsItemHovered() || ImGui::IsItemActive();
  ImGui::GetWindowDrawList()->AddRectFilled(ImGui::GetItemRectMin(), ImGui::GetItemRectMax(),
                                            packed(context.look.window));
  if (hot) {
    ImGui::SetMouseCursor(sideways ? ImGuiMouseCursor_ResizeEW : ImGuiMouseCursor_ResizeNS);
    const ImVec2 from = ImGui::GetItemRectMin();
    const ImVec2 to = ImGui::GetItemRectMax();
    const float inset = context.look.px(1.5f);
    const ImVec2 a = sideways ? ImVec2{from.x + inset, from.y} : ImVec2{from.x, from.y + inset};
    const ImVec2 b = sideways ? ImVec2{to.x - inset, to.y} : ImVec2{to.x, to.y - inset};
    ImGui::GetWindowDrawList()->AddRectFilled(a, b, packed(context.look.accent));
  }
  if (ImGui::IsItemActive()) {
    const ImVec2 mouse = ImGui::GetIO().MousePos;
    drag_splitter(splitter, mouse.x, mouse.y, context.look.px(kBar), context.look.px(kLeast));
    changed_ = true;
  }
  if (ImGui::IsItemHovered() && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left)) {
    splitter.split->share = 0.5;
    changed_ = true;
  }
  ImGui::PopID();
}

void Cells::draw_cell(PanelContext& context, const Panels& panels, Place& leaf, const Area& area) {
  Panel* panel = find(panels, leaf.panel);
  ImGui::SetCursorScreenPos({area.x, area.y});
  // A panel alone has a place of its own in every frame, but is one and the same to ImGui.
  ImGui::PushID(maximised_.empty() ? static_cast<const void*>(&leaf) : this);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {context.look.px(6), context.look.px(4)});
  // Not NavFlattened: arrows stay in the panel.
  ImGui::BeginChild(leaf.panel.c_str(), {area.w, area.h}, false,
                    ImGuiWindowFlags_AlwaysUseWindowPadding | ImGuiWindowFlags_NoScrollbar |
                        ImGuiWindowFlags_NoScrollWithMouse);
  if (takes_keyboard_ && focused_ == leaf.panel) {
    keyboard_here();
    takes_keyboard_ = false;
  }
  const bool hovered = ImGui::IsWindowHovered(ImGuiHoveredFlags_ChildWindows);
  if (hovered && (ImGui::IsMouseClicked(ImGuiMouseButton_Left) || focused_.empty())) {
    focused_ = leaf.panel;
  }
  if (panel == nullptr) {
    empty_place(context, "Unknown panel \"" + leaf.panel + "\"",
                "The session names a panel that this version does not have.");
  } else {
    areas_[leaf.panel] = area;
    draw_header(context, panels, leaf, *panel);
    if (shows_help(leaf.panel) && !draw_panel_help(context, leaf.panel)) helped_.erase(leaf.panel);
    ImGui::BeginChild("content", {0, 0}, false, ImGuiWindowFlags_NavFlattened);
    try {
      panel->draw(context);
    } catch (const Error& e) {
      error_place(context, e.what());
    }
    ImGui::EndChild();
    const bool clicks = hovered && ImGui::IsMouseReleased(ImGuiMouseButton_Right) &&
                        !panel->takes_right_click() &&
                        ImGui::GetMouseDragDelta(ImGuiMouseButton_Right).x == 0.0f;
    if (clicks || (opens_menu_ && focused_ == leaf.panel)) {
      focused_ = leaf.panel;
      opens_menu_ = false;
      ImGui::OpenPopup("menu");
    }
  }
  ImGui::EndChild();
  ImGui::PopStyleVar();
  ImGui::PopID();
}

void Cells::draw_panel_menu(const Panels& panels, Place& leaf) {
  if (!ImGui::BeginPopup("panels")) return;
  for (const auto& other : panels) {
    const PanelInfo named = other->info();
    if (named.name == "traces") continue;  // stands in the side bar
    if (ImGui::MenuItem(named.title.c_str(), nullptr, named.name == leaf.panel)) {
      leaf.panel = named.name;
      focused_ = named.name;
      changed_ = true;
    }
    help_tooltip(named.sentence);
  }
  ImGui::EndPopup();
}

void Cells::draw_menu(Requests& requests, const std::string& panel, bool has_help, bool is_alone) {
  if (!ImGui::BeginPopup("menu")) return;
  focused_ = panel;
  const auto item = [&](const char* label, const char* keys, const char* press, bool on = false) {
    if (ImGui::MenuItem(label, keys, on)) requests.press = press;
  };
  item("Export what I see...", "Ctrl+E", "export what the panel shows");
  landmark("menu: export");
  item("Copy the numbers as CSV", "Ctrl+C", "copy the panel's numbers as CSV");
  item("Copy the picture", "Ctrl+Shift+C", "copy the panel's picture");
  ImGui::Separator();
  item("Bookmark the selection...", "Ctrl+B", "bookmark the selection");
  if (has_help)
    item("What is shown", "F2", "what the panel shows, in words and formulas", shows_help(panel));
  item(is_alone ? "Back to the layout" : "This panel alone", "F", "this panel alone, and back");
  ImGui::EndPopup();
}

void Cells::draw_header(PanelContext& context, const Panels& panels, Place& leaf, Panel& panel) {
  const Look& look = context.look;
  const PanelInfo info = panel.info();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  if (focused_ == info.name) {
    ImGui::GetWindowDrawList()->AddRectFilled({at.x - look.px(6), at.y - look.px(4)},
                                              {at.x + width + look.px(6), at.y - look.px(2.5f)},
                                              packed(look.accent));
  }

  // The title is a menu of all panels.
  ImGui::PushStyleColor(ImGuiCol_Button, ImVec4(0, 0, 0, 0));
  const float beside = 2.0f * ImGui::GetFrameHeight() + ImGui::CalcTextSize(" ▾").x +
                       3.0f * ImGui::GetStyle().FramePadding.x;
  const std::string title = fitting(info.title, width - beside) + " ▾###title";
  if (ImGui::Button(title.c_str())) ImGui::OpenPopup("panels");
  landmark("title of " + info.name);
  help_tooltip(info.sentence);
  const float title_width = ImGui::GetItemRectSize().x;
  draw_panel_menu(panels, leaf);

  // At the right: maximise, and what can be taken away.
  const float button = ImGui::GetFrameHeight();
  const bool has_help = !help_texts(info.name).empty();
  const bool has_room = width > title_width + 3.5f * button;  // else the menu has it
  const float n_tools = has_help && has_room ? 3.0f : 2.0f;
  const float tools = n_tools * button + ImGui::GetStyle().ItemSpacing.x * 0.5f;
  ImGui::SetCursorScreenPos({at.x + width - tools, at.y});
  if (has_help && has_room) {
    const bool on = shows_help(info.name);
    if (on) ImGui::PushStyleColor(ImGuiCol_Text, packed(look.accent));
    if (ImGui::Button("?", {button, 0})) show_help(info.name, !on);
    if (on) ImGui::PopStyleColor();
    landmark("help of " + info.name);
    help_tooltip("What is shown, in words and formulas (F2)");
    ImGui::SetCursorScreenPos({at.x + width - tools + button, at.y});
  }
  if (ImGui::Button("⋯", {button, 0})) ImGui::OpenPopup("menu");
  landmark("menu of " + info.name);
  help_tooltip("What can be taken away (also: right click, Shift+F10)");
  ImGui::SetCursorScreenPos({at.x + width - button, at.y});
  const bool is_alone = maximised_ == info.name;
  if (ImGui::Button(is_alone ? "↙" : "↗", {button, 0})) maximised_ = is_alone ? "" : info.name;
  help_tooltip(is_alone ? "Back to the layout (F)" : "This panel alone (F)");
  ImGui::PopStyleColor();
  draw_menu(context.requests, info.name, has_help, is_alone);

  // The panel's switches: beside the title where they fit, else below it.
  const float spacing = ImGui::GetStyle().ItemSpacing.x;
  SwitchRow& switches = switches_[info.name];
  if (switches.width() <= width - title_width - tools - 2 * spacing) {
    ImGui::SetCursorScreenPos({at.x + title_width + spacing, at.y});
  } else {
    ImGui::SetCursorScreenPos({at.x, at.y + ImGui::GetFrameHeightWithSpacing()});
  }
  ImGui::BeginGroup();
  switches.begin(at.x + width);
  try {
    panel.controls(context);
  } catch (const Error& e) {
    context.session.notify(e.what());
  }
  if (switches.end()) context.requests.redraw = true;
  ImGui::EndGroup();
  const float bottom = std::max(ImGui::GetItemRectMax().y, at.y + ImGui::GetFrameHeight());
  ImGui::SetCursorScreenPos({at.x, bottom + ImGui::GetStyle().ItemSpacing.y * 0.5f});
}

void Cells::show_help(const std::string& panel, bool on) {
  if (on) {
    helped_.insert(panel);
  } else {
    helped_.erase(panel);
  }
}

std::optional<Area> Cells::area_of(const std::string& panel) const {
  const auto found = areas_.find(panel);
  if (found == areas_.end()) return std::nullopt;
  return found->second;
}

}  // namespace kvscope::gui
