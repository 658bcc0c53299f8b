// The App's messages above the panels.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "gui/app/app.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

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

}  // namespace kvscope::gui
