#include "gui/app/start_page.hpp"

#include <imgui.h>

#include <algorithm>

#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

std::vector<fs::path> demo_traces(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const char* name : {"verifier.h5", "draft.h5"}) {
    std::error_code error;
    const fs::path file = folder / "kvscope-demo" / name;
    if (fs::is_regular_file(file, error)) found.push_back(file);
  }
  return found;
}

StartChoice draw_start_page(PanelContext& context, const Settings& settings) {
  StartChoice choice;
  const Look& look = context.look;
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float width = std::min(room.x - look.px(40), look.px(560));
  ImGui::SetCursorPos({ImGui::GetCursorPosX() + (room.x - width) / 2,
                       ImGui::GetCursorPosY() + std::max(look.px(20), room.y * 0.14f)});
  ImGui::BeginChild("start", {width, 0}, false);
  ImGui::PushFont(context.fonts.title());
  ImGui::TextUnformatted("kvscope explorer");
  ImGui::PopFont();
  ImGui::PushStyleColor(ImGuiCol_Text, packed(look.muted));
  ImGui::TextWrapped("%s",
                     "Look inside the attention of a recorded model: what it needs, and what "
                     "sparse methods keep of it.");
  ImGui::PopStyleColor();
  ImGui::Dummy({0, look.px(14)});
  if (ImGui::Button("Open a trace or result...   Ctrl+O")) choice.ask_for_file = true;
  ImGui::PushStyleColor(ImGuiCol_Text, packed(look.muted));
  ImGui::TextWrapped("%s", "or drop files onto this window");
  ImGui::PopStyleColor();

  ImGui::Dummy({0, look.px(14)});
  ImGui::TextUnformatted("The demo");
  std::error_code error;
  const auto demo = demo_traces(fs::current_path(error));
  if (demo.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, packed(look.muted));
    ImGui::TextWrapped("%s",
                       "./demo.sh records the embedded model pair into the folder kvscope-demo; "
                       "started beside that folder, the explorer offers it here. Your own model: "
                       "kvscope record --model FOLDER --out trace.h5");
    ImGui::PopStyleColor();
  } else if (ImGui::Selectable("  The embedded verifier and draft model on a book")) {
    choice.open = demo;
  }

  if (!settings.recent.empty()) {
    ImGui::Dummy({0, look.px(14)});
    ImGui::TextUnformatted("Recent files");
    for (const std::string& file : settings.recent) {
      const fs::path path = file;
      const bool is_there = fs::exists(path, error);
      ImGui::PushID(file.c_str());
      const ImGuiSelectableFlags off = is_there ? 0 : ImGuiSelectableFlags_Disabled;
      if (ImGui::Selectable(("  " + path.filename().string()).c_str(), false, off))
        choice.open = {path};
      ImGui::SameLine();
      const std::string place = is_there ? path.parent_path().string() : "no longer there";
      ImGui::TextDisabled("%s", place.c_str());
      ImGui::PopID();
    }
  }
  ImGui::EndChild();
  return choice;
}

}  // namespace kvscope::gui
