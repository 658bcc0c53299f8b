// Named places of the window: where programs that drive it may click. The state file lists them.
#pragma once

#include <imgui.h>

#include <string>
#include <vector>

namespace kvscope::gui {

/// A name and a place, in pixels of the window.
struct Landmark {
  std::string name;
  ImVec2 low;
  ImVec2 high;
  ImVec2 middle() const { return {(low.x + high.x) / 2, (low.y + high.y) / 2}; }
};
using Landmarks = std::vector<Landmark>;

/// Gives ImGui's last item a name, if its middle can be seen. Of two items of one name in a
/// frame, the later counts.
void landmark(std::string name);
/// Those named since the last call.
Landmarks take_landmarks();

}  // namespace kvscope::gui
