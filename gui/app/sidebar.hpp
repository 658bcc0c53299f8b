// The side bar: traces, what is selected, the methods and their sliders.
#pragma once

#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// `traces`: the panel of the traces, drawn on top; null if there is none.
void draw_sidebar(PanelContext& context, Panel* traces);

}  // namespace kvscope::gui
