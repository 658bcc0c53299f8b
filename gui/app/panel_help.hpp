// The help that unfolds above a panel's picture: words, formulas, where they come from.
#pragma once

#include <string_view>

#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// Draws it at the cursor, in at most half of the room; false if it is to be folded again.
bool draw_panel_help(const PanelContext& context, std::string_view panel);

}  // namespace kvscope::gui
