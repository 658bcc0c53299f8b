#include "gui/panels/landmarks.hpp"

namespace kvscope::gui {

namespace {
/// There is one window, hence one list.
Landmarks seen_landmarks;
}  // namespace

void landmark(std::string name) {
  const ImVec2 low = ImGui::GetItemRectMin();
  const ImVec2 high = ImGui::GetItemRectMax();
  const ImVec2 middle{(low.x + high.x) / 2, (low.y + high.y) / 2};
  if (ImGui::IsRectVisible(middle, {middle.x + 1, middle.y + 1})) {
    seen_landmarks.emplace_back(std::move(name), middle);
  }
}

Landmarks take_landmarks() {
  return std::exchange(seen_landmarks, {});
}

}  // namespace kvscope::gui
