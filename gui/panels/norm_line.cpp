#include "gui/panels/norm_line.hpp"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

void draw_norm_line(const PanelContext& context, const char* name, const char* kind,
                    const HeadNorms& norms) {
  const Look& look = context.look;
  ImGui::PushFont(context.fonts.small());
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const float height = look.px(20);
  const std::string mean = fmt::format("{:.3g}", norms.mean);
  const float left = ImGui::CalcTextSize("|q|").x + look.px(8);
  const float right = std::max(look.px(36), ImGui::CalcTextSize(mean.c_str()).x + look.px(8));
  ImGui::PushID(name);
  ImGui::InvisibleButton("norms", {std::max(1.0f, width), height});
  ImGui::PopID();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float text_y = at.y + 0.5f * (height - ImGui::GetFontSize());
  list->AddText({at.x, text_y}, packed(look.muted), name);
  list->AddText({at.x + width - ImGui::CalcTextSize(mean.c_str()).x, text_y}, packed(look.ink),
                mean.c_str());
  float low = std::numeric_limits<float>::infinity();
  float high = -low;
  for (const float bin : norms.bins) {
    if (std::isnan(bin)) continue;
    low = std::min(low, bin);
    high = std::max(high, bin);
  }
  const float room = std::max(1.0f, width - left - right);
  const auto n = norms.bins.size();
  const auto x_of = [&](std::size_t i) {
    return at.x + left + room * (static_cast<float>(i) + 0.5f) / static_cast<float>(n);
  };
  const auto y_of = [&](float bin) {
    const float t = high > low ? (bin - low) / (high - low) : 0.5f;
    return at.y + height - look.px(3) - t * (height - look.px(6));
  };
  for (std::size_t i = 0; i < n; ++i) {
    if (std::isnan(norms.bins[i])) {
      list->AddRectFilled({x_of(i) - look.px(1), at.y}, {x_of(i) + look.px(1), at.y + height},
                          packed(look.error));
    } else if (i > 0 && !std::isnan(norms.bins[i - 1])) {
      list->AddLine({x_of(i - 1), y_of(norms.bins[i - 1])}, {x_of(i), y_of(norms.bins[i])},
                    packed(look.muted), look.px(1.2f));
    }
  }
  ImGui::PopFont();
  if (!ImGui::IsItemHovered() || n == 0) return;
  const float t = (ImGui::GetIO().MousePos.x - at.x - left) / room;
  const auto bin = static_cast<std::size_t>(
      std::clamp(t * static_cast<float>(n), 0.0f, static_cast<float>(n) - 1.0f));
  list->AddLine({x_of(bin), at.y}, {x_of(bin), at.y + height}, packed(look.accent));
  const Index per_bin = norm_bin_width(norms.positions);
  const Index begin = norms.positions.begin + static_cast<Index>(bin) * per_bin;
  const Index last = std::min(begin + per_bin, norms.positions.end) - 1;
  detail_tooltip(
      {{"norms of", fmt::format("{} head {}", kind, norms.head)},
       {"mean", mean},
       {"largest", fmt::format("{:.4g}", norms.largest)},
       {last > begin ? "positions" : "position",
        last > begin ? fmt::format("{} to {}", begin, last) : fmt::format("{}", begin)},
       {"norm there", std::isnan(norms.bins[bin]) ? std::string("could not be read")
                                                  : fmt::format("{:.4g}", norms.bins[bin])}});
}

}  // namespace kvscope::gui
