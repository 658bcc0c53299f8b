// Draws the marks of one panel, inside its frame.
#pragma once

#include "analysis/plot/canvas.hpp"
#include "analysis/plot/figure.hpp"
#include "analysis/plot/layout.hpp"
#include "analysis/plot/theme.hpp"

namespace kvscope::plot {

/// In the order of the panel; the caller clips to the frame.
void draw_marks(const Panel& panel, const PanelLayout& layout, const Theme& theme, Canvas& canvas);

/// The numbers of a heat map's cells, centred in them, dark on light and light on dark; none where
/// they would be too small to be read.
std::vector<PlacedText> cell_numbers(const HeatMap& map, const Panel& panel,
                                     const PanelLayout& layout, const Theme& theme,
                                     const TextMetrics& metrics);

}  // namespace kvscope::plot
