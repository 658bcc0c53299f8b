// Help: all keys on one page, over everything; and words and formulas with where they come from,
// which unfold above a panel's picture.
#pragma once

#include <string_view>
#include <vector>

#include "gui/app/shortcuts.hpp"
#include "gui/panels/panel.hpp"
#include "gui/render/look.hpp"

namespace kvscope::gui {

/// Returns false once it was closed.
bool draw_help(const Look& look, const std::vector<Shortcut>& shortcuts);

/// Draws it at the cursor, in at most half of the room; false if it is to be folded again.
bool draw_panel_help(const PanelContext& context, std::string_view panel);

}  // namespace kvscope::gui
