#include "gui/app/help_overlay.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

struct MouseHint {
  const char* gesture;
  const char* words;
};
constexpr MouseHint kMouse[] = {
    {"hover", "exact value, token, position"},
    {"click", "select it, in all panels"},
    {"wheel", "zoom about the mouse (Ctrl: across only, Shift: up and down only)"},
    {"drag", "pan; orbit in 3D"},
    {"double click", "everything again"},
    {"Shift and drag", "zoom into a rectangle of the attention map"},
    {"over that map",
     "arrows move, + - zoom, 0 all, W all keys, V recorded queries, G selected pair"},
    {"drag a bar", "resize panels; double click: equal parts"},
    {"Shift or right click", "the key instead of the query, in the token strip"},
};

}  // namespace

bool draw_help(const Look& look, const std::vector<Shortcut>& shortcuts) {
  const ImVec2 room = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowPos({room.x / 2, room.y / 2}, ImGuiCond_Always, {0.5f, 0.5f});
  ImGui::SetNextWindowSize(
      {std::min(room.x * 0.94f, look.px(960)), std::min(room.y * 0.92f, look.px(640))});
  ImGui::SetNextWindowFocus();
  ImGui::PushStyleColor(ImGuiCol_WindowBg, packed(look.surface));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 1.0f);
  bool open = true;
  ImGui::Begin("Keys and mouse", &open,
               ImGuiWindowFlags_NoResize | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoCollapse);
  if (ImGui::BeginTable("columns", 2)) {
    std::string group;
    const auto row = [&](const std::string& left, const std::string& right) {
      ImGui::TextUnformatted(right.c_str());
      ImGui::SameLine(look.px(300));
      ImGui::TextDisabled("%s", left.c_str());
    };
    ImGui::TableNextColumn();
    const std::size_t half = shortcuts.size() / 2;
    for (std::size_t i = 0; i < shortcuts.size(); ++i) {
      const Shortcut& s = shortcuts[i];
      if (s.group != group) {
        if (i >= half && ImGui::TableGetColumnIndex() == 0) ImGui::TableNextColumn();
        ImGui::Dummy({0, look.px(4)});
        ImGui::TextDisabled("%s", s.group.c_str());
        ImGui::Separator();
        group = s.group;
      }
      // A key and its way back stand on one line.
      const bool has_way_back = i + 1 < shortcuts.size() && shortcuts[i + 1].key == s.key &&
                                shortcuts[i + 1].group == s.group && !s.shift &&
                                shortcuts[i + 1].shift;
      row(has_way_back ? fmt::format("{}, {}", keys_of(s), keys_of(shortcuts[i + 1])) : keys_of(s),
          has_way_back ? fmt::format("{}, {}", s.words, shortcuts[i + 1].words) : s.words);
      if (has_way_back) ++i;
    }
    ImGui::Dummy({0, look.px(4)});
    ImGui::TextDisabled("Mouse");
    ImGui::Separator();
    for (const MouseHint& hint : kMouse) {
      ImGui::TextUnformatted(hint.gesture);
      ImGui::SameLine(look.px(130));
      ImGui::PushTextWrapPos(0.0f);
      ImGui::TextDisabled("%s", hint.words);
      ImGui::PopTextWrapPos();
    }
    ImGui::EndTable();
  }
  ImGui::End();
  ImGui::PopStyleVar();
  ImGui::PopStyleColor();
  return open;
}

}  // namespace kvscope::gui
