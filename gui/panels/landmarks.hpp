// Named places of the window: where programs that drive it may click. The state file lists them.
#pragma once

#include <imgui.h>

#include <string>
#include <utility>
#include <vector>

namespace kvscope::gui {

/// Names and places in pixels of the window.
using Landmarks = std::vector<std::pair<std::string, ImVec2>>;

/// Gives the middle of ImGui's last item a name, if it can be seen. Of two items of one name in a
/// frame, the later counts.
void landmark(std::string name);
/// Those named since the last call.
Landmarks take_landmarks();

}  // namespace kvscope::gui
