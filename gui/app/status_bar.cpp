#include "gui/app/status_bar.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "core/base/number_text.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"

namespace kvscope::gui {

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

}  // namespace kvscope::gui
