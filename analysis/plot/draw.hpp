// Draws a laid-out figure on a canvas.
#pragma once

#include "analysis/plot/canvas.hpp"
#include "analysis/plot/figure.hpp"
#include "analysis/plot/layout.hpp"
#include "analysis/plot/theme.hpp"

namespace kvscope::plot {

/// `layout` must come from the same figure and theme. Curves with many points are folded to their
/// extremes per quarter point of width, which no printer can tell apart; clouds of more than
/// kMostVectorMarkers points become one image of the canvas' resolution.
/// `page`: whether the ground is painted first.
enum class PageFill { fill, leave };
void draw_figure(const Figure& figure, const Layout& layout, const Theme& theme, Canvas& canvas,
                 PageFill page = PageFill::fill);

inline constexpr std::size_t kMostVectorMarkers = 4000;

}  // namespace kvscope::plot
