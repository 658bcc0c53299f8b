// Legends: which entries there are, and where they stand.
#pragma once

#include <span>

#include "analysis/plot/layout.hpp"

namespace kvscope::plot {

/// Entries of the panels' labelled marks in order of appearance, each label once.
std::vector<LegendEntry> legend_entries(std::span<const Panel> panels);

/// Rows of equally wide columns, as many columns as fit into `width`, centred over
/// [left, left + width], from `top` downwards.
LegendLayout legend_above(std::vector<LegendEntry> entries, double left, double top, double width,
                          const Theme& theme, const TextMetrics& metrics);

/// One column in the corner or at the edge of the panel's frame where it hides the least data.
LegendLayout legend_inside(std::vector<LegendEntry> entries, const Panel& panel,
                           const PanelLayout& layout, const Theme& theme,
                           const TextMetrics& metrics);

}  // namespace kvscope::plot
