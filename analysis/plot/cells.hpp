// What is drawn on the cells of a heat map that is read cell by cell: numbers, borders, outlines.
#pragma once

#include <utility>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "analysis/plot/layout.hpp"
#include "analysis/plot/theme.hpp"

namespace kvscope::plot {

/// The numbers of a heat map's cells, centred in them, dark on light and light on dark; none where
/// they would be too small to be read.
std::vector<PlacedText> cell_numbers(const HeatMap& map, const Panel& panel,
                                     const PanelLayout& layout, const Theme& theme,
                                     const TextMetrics& metrics);

/// Lines between the cells, so that neighbours of one colour can be told apart; none where cells
/// are too small for them.
std::vector<std::pair<Point, Point>> cell_borders(const HeatMap& map, const PanelLayout& layout);

/// The line of a box around something of that size on the page: thin enough to leave the inside
/// to be seen.
double box_width(double width, double height, const Theme& theme);

}  // namespace kvscope::plot
