// All keys on one page, over everything.
#pragma once

#include <vector>

#include "gui/app/shortcuts.hpp"
#include "gui/render/look.hpp"

namespace kvscope::gui {

/// Returns false once it was closed.
bool draw_help(const Look& look, const std::vector<Shortcut>& shortcuts);

}  // namespace kvscope::gui
