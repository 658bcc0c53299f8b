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
  const auto width_of = [](const std::string& words) {
    return ImGui::CalcTextSize(words.c_str()).x;
  };
  float keys_at = 0.0f;  // behind the longest words
  for (const Shortcut& s : shortcuts) keys_at = std::max(keys_at, width_of(s.words) + look.px(12));
  const int n_columns = room.x > look.px(900) ? 2 : 1;
  if (ImGui::BeginTable("columns", n_columns)) {
    std::string group;
    const auto row = [&](const std::string& left, const std::string& right) {
      ImGui::TextUnformatted(right.c_str());
      ImGui::SameLine(keys_at);
      ImGui::TextDisabled("%s", left.c_str());
    };
    ImGui::TableNextColumn();
    const std::size_t half = shortcuts.size() / 2;
    for (std::size_t i = 0; i < shortcuts.size(); ++i) {
      const Shortcut& s = shortcuts[i];
      if (s.group != group) {
        if (i >= half && ImGui::TableGetColumnIndex() + 1 < n_columns) ImGui::TableNextColumn();
        ImGui::Dummy({0, look.px(4)});
        ImGui::TextDisabled("%s", s.group.c_str());
        ImGui::Separator();
        group = s.group;
      }
      // A key and its way back stand on one line, if that is long enough.
      const Shortcut* back = i + 1 < shortcuts.size() ? &shortcuts[i + 1] : nullptr;
      const bool has_way_back = back != nullptr && back->key == s.key && back->group == s.group &&
                                !s.shift && back->shift;
      const std::string both = has_way_back ? fmt::format("{}, {}", s.words, back->words) : "";
      if (has_way_back && width_of(both) < keys_at) {
        row(fmt::format("{}, {}", keys_of(s), keys_of(*back)), both);
        ++i;
      } else {
        row(keys_of(s), s.words);
      }
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
