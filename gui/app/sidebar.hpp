// The side bar: traces, what is selected, the methods and their sliders.
#pragma once

#include <optional>

#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// `traces`: the panel of the traces, drawn on top; null if there is none. `controls_height`:
/// pixels that what stands below it took in the last frame; 0 before the first.
/// Returns the open result that was clicked, if one was.
std::optional<Index> draw_sidebar(PanelContext& context, Panel* traces, float& controls_height);

}  // namespace kvscope::gui
