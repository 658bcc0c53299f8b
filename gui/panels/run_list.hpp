// The commands that were started from the window, as a list: how far each is, how it ended, and
// what can be done with it.
#pragma once

#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// The latest first. Nothing if there are none.
void draw_run_list(PanelContext& context);

}  // namespace kvscope::gui
