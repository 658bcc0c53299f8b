// The side bar: traces, what is selected, the methods and their sliders.
#pragma once

#include <optional>

#include "gui/panels/method_choice.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// What the side bar remembers between frames.
struct SidebarState {
  float controls_height = 0.0f;  // pixels below the traces in the last frame; 0 before the first
  MethodChoice methods;
};

/// `traces`: the panel of the traces, drawn on top; null if there is none.
/// Returns the open result that was clicked, if one was.
std::optional<Index> draw_sidebar(PanelContext& context, Panel* traces, SidebarState& state);

}  // namespace kvscope::gui
