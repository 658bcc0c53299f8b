// The parts of lines and areas near the page: what lies very far outside, in a figure that is
// zoomed, has no place in the fixed-point numbers of a renderer.
#pragma once

#include <span>
#include <vector>

#include "analysis/plot/geometry.hpp"

namespace kvscope::plot {

/// The parts of a line inside `box`; points that are not finite are gaps.
std::vector<std::vector<Point>> clip_line(std::span<const Point> points, const Rect& box);

/// The part of a polygon inside `box` (Sutherland and Hodgman), without points that are not finite.
std::vector<Point> clip_polygon(std::span<const Point> outline, const Rect& box);

}  // namespace kvscope::plot
