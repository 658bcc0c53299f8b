#include "gui/panels/panel.hpp"

#include <imgui.h>

#include <nlohmann/json.hpp>

#include "notebooks_export/figure_csv.hpp"

namespace kvscope::gui {

void Places::add_item(std::string name) {
  const ImVec2 low = ImGui::GetItemRectMin();
  const ImVec2 high = ImGui::GetItemRectMax();
  emplace_back(std::move(name), ImVec2{0.5f * (low.x + high.x), 0.5f * (low.y + high.y)});
}

nlohmann::ordered_json Panel::options() const {
  return nlohmann::ordered_json::object();
}

std::optional<std::string> Panel::csv() const {
  const auto shown = figure();
  if (!shown) return std::nullopt;
  return figure_csv(*shown);
}

}  // namespace kvscope::gui
