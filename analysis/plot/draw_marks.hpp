// Draws the marks of one panel, inside its frame.
#pragma once

#include "analysis/plot/canvas.hpp"
#include "analysis/plot/figure.hpp"
#include "analysis/plot/layout.hpp"
#include "analysis/plot/theme.hpp"

namespace kvscope::plot {

/// In the order of the panel; the caller clips to the frame.
void draw_marks(const Panel& panel, const PanelLayout& layout, const Theme& theme, Canvas& canvas);

}  // namespace kvscope::plot
