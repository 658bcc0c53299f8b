// The App's window: the bar at its top, messages, the side bar, what stands beside it, and the line
// at the bottom.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cctype>

#include "core/base/number_text.hpp"
#include "gui/app/app.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

constexpr float kSidebar = 262.0f;  // points

/// One line at the bottom: what is computed in the background, and what a key just did.
void draw_status_bar(PanelContext& context, const std::string& flash) {
  const Workbench bench = context.session.bench();
  // Programs beside the window come last, and are cancelled where they are listed.
  auto jobs = bench.jobs.active();
  std::erase_if(jobs, [](const Job& job) { return job.status().lane == Lane::questions; });
  const auto is_own = [](const Job& job) { return job.status().lane != Lane::programs; };
  const auto n_own = std::stable_partition(jobs.begin(), jobs.end(), is_own) - jobs.begin();
  const std::string memory =
      fmt::format("cache {} of {}", bytes_text(static_cast<double>(bench.cache.bytes())),
                  bytes_text(static_cast<double>(bench.cache.limit())));
  const float right = ImGui::GetWindowContentRegionMax().x - ImGui::CalcTextSize(memory.c_str()).x;
  ImGui::AlignTextToFramePadding();
  // What was just done, or refused, is said at once, whatever is computed meanwhile.
  if (flash.empty() && !jobs.empty()) {
    const JobStatus status = jobs.front().status();
    progress_bar(status, context.look.px(110));
    ImGui::SameLine();
    std::string words = fmt::format("{}  {}", status.title, progress_words(status));
    if (jobs.size() > 1) words += fmt::format("  and {} more", jobs.size() - 1);
    ImGui::TextUnformatted(words.c_str());
    if (n_own > 0) {
      ImGui::SameLine();
      if (ImGui::SmallButton("Cancel all")) {
        std::for_each(jobs.begin(), jobs.begin() + n_own, [](const Job& job) { job.cancel(); });
      }
    }
  } else {
    const float room = right - context.look.px(12) - ImGui::GetCursorPosX();
    ImGui::TextDisabled("%s", flash.empty() ? "F1 shows the keys" : fitting(flash, room).c_str());
    if (!flash.empty()) help_tooltip(flash);
  }
  ImGui::SameLine(right);
  ImGui::TextDisabled("%s", memory.c_str());
  help_tooltip("Memory of computed values and slices. The limit is in the settings (cache-mib).");
}

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
  if (ImGui::Button(run_words.c_str())) requests_.press = "run a command of kvscope, and back";
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

void App::draw_banners() {
  constexpr std::size_t kMostBanners = 2;  // more become one line
  constexpr float kMostHeight = 0.3f;      // of the window, when all are shown
  const std::size_t n = session_->notices().size();
  if (n <= kMostBanners) {
    shows_all_banners_ = false;
    for (std::size_t i = 0; i < session_->notices().size(); ++i) draw_banner(i);
    return;
  }
  const bool has_error = std::any_of(session_->notices().begin(), session_->notices().end(),
                                     [](const Notice& notice) { return notice.is_error; });
  const plot::Colour tone = has_error ? look_.error : look_.warning;
  const float width = ImGui::GetContentRegionAvail().x;
  ImGui::PushStyleColor(ImGuiCol_ChildBg,
                        packed(plot::blend(plot::with_alpha(tone, 0.14), look_.surface)));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {look_.px(10), look_.px(4)});
  ImGui::BeginChild("notices", {0, ImGui::GetFrameHeight() + look_.px(8)}, false,
                    ImGuiWindowFlags_AlwaysUseWindowPadding | ImGuiWindowFlags_NoScrollbar |
                        ImGuiWindowFlags_NavFlattened);
  ImGui::AlignTextToFramePadding();
  const std::string& last = session_->notices().back().sentence;
  const std::string words = fmt::format("{} messages, the last: {}", n,
                                        last.substr(0, std::min(last.find('\n'), last.size())));
  const float buttons = width - look_.px(190);
  ImGui::TextUnformatted(fitting(words, buttons - look_.px(20)).c_str());
  ImGui::SameLine(buttons);
  if (ImGui::Button(shows_all_banners_ ? "Fold" : "Show")) shows_all_banners_ = !shows_all_banners_;
  landmark("show messages");
  ImGui::SameLine();
  const bool dismissed = ImGui::Button("Dismiss all");
  landmark("dismiss all");
  ImGui::EndChild();
  ImGui::PopStyleVar();
  ImGui::PopStyleColor();
  if (shows_all_banners_) {
    const float wanted = static_cast<float>(n) * (ImGui::GetFrameHeight() + look_.px(8));
    ImGui::BeginChild("all notices",
                      {0, std::min(wanted, kMostHeight * ImGui::GetIO().DisplaySize.y)}, false);
    for (std::size_t i = 0; i < session_->notices().size(); ++i) draw_banner(i);
    ImGui::EndChild();
  }
  if (dismissed) session_->dismiss_all();
}

void App::draw_banner(std::size_t i) {
  const Notice notice = session_->notices()[i];
  const plot::Colour tone = notice.is_error ? look_.error : look_.warning;
  const float width = ImGui::GetContentRegionAvail().x;
  const float wrap = width - look_.px(notice.reload.empty() ? 100 : 170);
  const ImVec2 text = ImGui::CalcTextSize(notice.sentence.c_str(), nullptr, false, wrap);
  const float height = std::max(text.y, ImGui::GetFrameHeight()) + look_.px(8);
  ImGui::PushID(static_cast<int>(i));
  ImGui::PushStyleColor(ImGuiCol_ChildBg,
                        packed(plot::blend(plot::with_alpha(tone, 0.14), look_.surface)));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {look_.px(10), look_.px(4)});
  ImGui::BeginChild("notice", {0, height}, false,
                    ImGuiWindowFlags_AlwaysUseWindowPadding | ImGuiWindowFlags_NavFlattened);
  ImGui::AlignTextToFramePadding();
  ImGui::PushTextWrapPos(wrap);
  ImGui::TextUnformatted(notice.sentence.c_str());
  ImGui::PopTextWrapPos();
  bool reloads = false;
  if (!notice.reload.empty()) {
    ImGui::SameLine(width - look_.px(150));
    reloads = ImGui::Button("Reload");
    landmark(fmt::format("reload {}", i));
  }
  ImGui::SameLine(width - look_.px(80));
  const bool dismissed = ImGui::Button("Dismiss");
  landmark(fmt::format("dismiss {}", i));
  ImGui::EndChild();
  ImGui::PopStyleVar();
  ImGui::PopStyleColor();
  ImGui::PopID();
  if (reloads) {
    session_->reload(notice.reload);
  } else if (dismissed) {
    session_->dismiss(i);
  }
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
    if (choice.record) ask_command("record", *choice.record);
  } else {
    cells_.draw(shared, panels_, arrangement_, area);
    if (cells_.has_changed()) {
      settings_.arrangements[layout_] = arrangement_;
      unsaved_ = true;
    }
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
