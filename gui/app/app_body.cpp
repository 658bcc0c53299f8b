// The App's window: the bar at its top, the side bar, and what stands beside it.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cctype>

#include "gui/app/app.hpp"
#include "gui/app/status_bar.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

namespace {

constexpr float kSidebar = 262.0f;  // points

}  // namespace

void App::draw_top_bar() {
  const Look& look = look_;
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {look.px(8), look.px(4)});
  ImGui::BeginChild("top", {0, ImGui::GetFrameHeight() + look.px(8)}, false,
                    ImGuiWindowFlags_AlwaysUseWindowPadding | ImGuiWindowFlags_NoScrollbar |
                        ImGuiWindowFlags_NavFlattened);
  if (ImGui::Button("Open")) ask_open();
  help_tooltip("Traces and results (Ctrl+O); files can be dropped onto the window");
  ImGui::SameLine();
  const auto& runs = runs_->runs();
  const auto n_open =
      std::count_if(runs.begin(), runs.end(), [](const Run& run) { return !run.status.is_over(); });
  const std::string run_words = n_open > 0 ? fmt::format("Run ({})###run", n_open) : "Run###run";
  if (ImGui::Button(run_words.c_str())) toggle_runs();
  landmark("open runs");
  help_tooltip("Record, analyse, sweep or simulate, and what was started (Ctrl+R)");
  ImGui::SameLine();
  ImGui::Dummy({look.px(8), 0});
  const char* theme = settings_.theme == plot::Ground::light ? "Dark" : "Light";
  const float right = ImGui::CalcTextSize(theme).x + ImGui::CalcTextSize("HelpTour").x +
                      6 * ImGui::GetStyle().FramePadding.x + 2 * ImGui::GetStyle().ItemSpacing.x;
  std::vector<std::string> names;
  float needed = 0.0f;
  for (const Layout& layout : layouts_) {
    names.push_back(fmt::format("{}  {}", names.size() + 1, layout.name));
    char& first = names.back()[names.back().size() - layout.name.size()];
    first = static_cast<char>(std::toupper(first));
    needed += ImGui::CalcTextSize(names.back().c_str()).x + 2 * ImGui::GetStyle().FramePadding.x +
              ImGui::GetStyle().ItemSpacing.x;
  }
  const bool has_room = ImGui::GetItemRectMax().x - ImGui::GetWindowPos().x + needed + right <
                        ImGui::GetWindowContentRegionMax().x;
  for (std::size_t i = 0; i < layouts_.size(); ++i) {
    ImGui::SameLine();
    const bool on = !is_empty() && layouts_[i].name == layout_ && cells_.maximised().empty();
    ImGui::PushStyleColor(ImGuiCol_Button, on ? packed(plot::with_alpha(look.accent, 0.22)) : 0);
    const std::string words =
        has_room ? names[i] : fmt::format("{}###{}", i + 1, names[i]);  // its tooltip names it
    if (ImGui::Button(words.c_str())) show_layout(layouts_[i].name);
    landmark("layout " + layouts_[i].name);
    ImGui::PopStyleColor();
    help_tooltip(has_room ? layouts_[i].sentence : names[i] + ": " + layouts_[i].sentence);
  }
  ImGui::SameLine(ImGui::GetWindowContentRegionMax().x - right);
  if (ImGui::Button("Tour")) {
    if (session_->documents().empty()) {
      flash("the tour shows an open trace: open or record one first");
    } else {
      tour_.start();
    }
  }
  landmark("tour");
  help_tooltip("Six steps through the window; Esc leaves");
  ImGui::SameLine();
  if (ImGui::Button(theme)) requests_.press = "light or dark";
  help_tooltip("Light or dark (Ctrl+Shift+T)");
  ImGui::SameLine();
  if (ImGui::Button("Help")) shows_help_ = true;
  help_tooltip("All keys, and what the mouse does (F1)");
  ImGui::EndChild();
  ImGui::PopStyleVar();
}

/// What brings a hidden side bar back; its width.
float App::draw_side_handle(ImVec2 at, float height) {
  const float width = look_.px(14);
  ImGui::SetCursorScreenPos(at);
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, {0, 0});
  if (ImGui::Button("›##side", {width, std::max(1.0f, height)})) settings_.show_sidebar = true;
  ImGui::PopStyleVar();
  landmark("show side bar");
  help_tooltip("The side bar: traces, selection, methods and sliders (Ctrl+Shift+S)");
  return width;
}

void App::draw_body() {
  PanelContext shared = context();
  const float status = ImGui::GetFrameHeight() + look_.px(6);
  const float bar = look_.px(5);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float height = std::max(1.0f, room.y - status - bar);
  float left = 0.0f;
  // The ground is the panels' own; what lies between them is painted.
  const auto strip = [&](float x, float y, float w, float h) {
    ImGui::GetWindowDrawList()->AddRectFilled({x, y}, {x + w, y + h}, packed(look_.window));
  };
  strip(at.x, at.y, room.x, bar);
  strip(at.x, at.y + height, room.x, bar);
  if (settings_.show_sidebar && !is_empty()) {
    left = std::min(look_.px(kSidebar), room.x * 0.3f);
    ImGui::SetCursorScreenPos({at.x, at.y + bar});
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {look_.px(8), look_.px(6)});
    ImGui::BeginChild("side", {left, height - bar}, false, ImGuiWindowFlags_AlwaysUseWindowPadding);
    if (takes_keyboard("side bar")) keyboard_here();
    const auto clicked = draw_sidebar(shared, find_panel("traces"), side_);
    const auto& results = session_->results();
    if (clicked && *clicked < static_cast<Index>(results.size()))
      show_result(*results[static_cast<std::size_t>(*clicked)]);
    ImGui::EndChild();
    landmark("side bar");
    ImGui::PopStyleVar();
    strip(at.x + left, at.y, bar, height);
    left += bar;
  } else if (!is_empty()) {
    left = draw_side_handle({at.x, at.y + bar}, height - bar);
  }
  const Area area{at.x + left, at.y + bar, room.x - left, height - bar};
  if (is_empty() && cells_.maximised().empty()) {
    ImGui::SetCursorScreenPos({area.x, area.y});
    ImGui::BeginChild("page", {area.w, area.h}, false, ImGuiWindowFlags_NavFlattened);
    if (takes_keyboard("page")) keyboard_here();
    const StartChoice choice = start_page_.draw(shared, settings_);
    ImGui::EndChild();
    if (choice.shows_samples && !settings_.tour_done) awaited_traces_ = requests_.open.size();
    if (choice.record) ask_record(*choice.record);
  } else {
    cells_.draw(shared, panels_, arrangement_, area);
    if (cells_.has_changed()) keep_arrangement();
  }
  for (const auto& file : requests_.open) open(file);
  if (!requests_.flash.empty()) flash(requests_.flash);
  if (requests_.export_page) export_page();
  const auto pressed = std::ranges::find(shortcuts_, requests_.press, &Shortcut::words);
  if (pressed != shortcuts_.end()) pressed->run();
  if (!requests_.show_panel.empty()) bring_up(requests_.show_panel);
  ImGui::SetCursorScreenPos({at.x, at.y + room.y - status});
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {look_.px(8), look_.px(3)});
  ImGui::BeginChild("status", {0, status}, false,
                    ImGuiWindowFlags_AlwaysUseWindowPadding | ImGuiWindowFlags_NoScrollbar |
                        ImGuiWindowFlags_NavFlattened);
  draw_status_bar(shared, ImGui::GetTime() < flash_until_ ? flash_ : std::string());
  ImGui::EndChild();
  ImGui::PopStyleVar();
}

}  // namespace kvscope::gui
