#include "gui/panels/method_choice.hpp"

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <optional>

#include "gui/model/session/methods.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

constexpr std::size_t kMostRecent = 5;

/// The list below the field; the method that was clicked.
std::optional<std::string> draw_groups(const Look& look, const std::vector<MethodGroup>& groups,
                                       const std::string& chosen) {
  std::optional<std::string> clicked;
  const float right = ImGui::GetWindowContentRegionMax().x;
  for (const MethodGroup& group : groups) {
    ImGui::TextDisabled("%s", group.heading.c_str());
    ImGui::PushID(group.heading.c_str());
    for (const MethodLine& line : group.methods) {
      const float left = ImGui::GetCursorPosX();
      const bool on = line.name == chosen;
      if (ImGui::Selectable(line.name.c_str(), on)) clicked = line.name;
      if (on) ImGui::SetItemDefaultFocus();
      help_tooltip(line.idea);
      const float paper = right - ImGui::CalcTextSize(line.paper.c_str()).x;
      const float title = left + look.px(170);
      ImGui::SameLine(title);
      ImGui::TextDisabled("%s", fitting(line.title, paper - title - look.px(10)).c_str());
      ImGui::SameLine(paper);
      ImGui::TextDisabled("%s", line.paper.c_str());
    }
    ImGui::PopID();
  }
  if (groups.empty()) ImGui::TextDisabled("no method of that name, paper or idea");
  return clicked;
}

}  // namespace

bool choose_method(PanelContext& context, MethodChoice& choice, const char* name,
                   std::string& chosen) {
  const Look& look = context.look;
  const ImVec2 room = ImGui::GetIO().DisplaySize;
  const ImVec2 size{std::min(look.px(600), room.x * 0.9f), std::min(look.px(440), room.y * 0.6f)};
  ImGui::SetNextItemWidth(-1.0f);
  ImGui::SetNextWindowSizeConstraints({size.x, 0.0f}, {size.x, room.y});
  const bool is_open = ImGui::BeginCombo(fmt::format("##{}", name).c_str(), chosen.c_str());
  if (!is_open) {
    landmark(name);
    return false;
  }
  if (ImGui::IsWindowAppearing()) {
    choice.typed.clear();
    ImGui::SetKeyboardFocusHere();
  }
  ImGui::SetNextItemWidth(-1.0f);
  const bool is_entered =
      ImGui::InputTextWithHint("##find", "find by name, paper, year or idea; Enter takes the first",
                               &choice.typed, ImGuiInputTextFlags_EnterReturnsTrue);
  landmark(fmt::format("find {}", name));
  const std::vector<MethodGroup> groups = method_groups(choice.typed, choice.recent);
  ImGui::BeginChild("methods", {0, size.y}, false, ImGuiWindowFlags_NavFlattened);
  std::optional<std::string> taken = draw_groups(look, groups, chosen);
  ImGui::EndChild();
  if (is_entered && !groups.empty()) taken = groups.front().methods.front().name;
  if (taken) ImGui::CloseCurrentPopup();
  ImGui::EndCombo();
  if (!taken) return false;
  std::erase(choice.recent, *taken);
  choice.recent.insert(choice.recent.begin(), *taken);
  if (choice.recent.size() > kMostRecent) choice.recent.resize(kMostRecent);
  const bool is_other = *taken != chosen;
  chosen = *taken;
  return is_other;
}

}  // namespace kvscope::gui
