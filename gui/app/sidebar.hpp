// The side bar: traces, what is selected, the methods and their sliders.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// What the drop-downs of methods remember: under their families' headings, with paper and year,
/// found by typing.
struct MethodChoice {
  std::string typed;                // into the field above the list
  std::vector<std::string> recent;  // chosen before, the last one first
};

/// What the side bar remembers between frames.
struct SidebarState {
  float controls_height = 0.0f;  // pixels below the traces in the last frame; 0 before the first
  MethodChoice methods;
};

/// `traces`: the panel of the traces, drawn on top; null if there is none.
/// Returns the open result that was clicked, if one was.
std::optional<Index> draw_sidebar(PanelContext& context, Panel* traces, SidebarState& state);

}  // namespace kvscope::gui
