#include "gui/panels/landmarks.hpp"

#include <utility>

namespace kvscope::gui {

namespace {
/// There is one window, hence one list.
Landmarks seen_landmarks;
}  // namespace

void landmark(std::string name) {
  const Landmark item{std::move(name), ImGui::GetItemRectMin(), ImGui::GetItemRectMax()};
  const ImVec2 at = item.middle();
  if (ImGui::IsRectVisible(at, {at.x + 1, at.y + 1})) seen_landmarks.push_back(item);
}

Landmarks take_landmarks() {
  return std::exchange(seen_landmarks, {});
}

}  // namespace kvscope::gui
