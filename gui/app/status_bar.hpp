// One line at the bottom: what is computed in the background, and what a key just did.
#pragma once

#include <string>

#include "gui/model/jobs/cache.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

void draw_status_bar(PanelContext& context, const std::string& flash);

}  // namespace kvscope::gui
