// Lines as pieces that a window can draw: clipped, dashed, and without turns too sharp for mitred
// joins.
#pragma once

#include <span>
#include <vector>

#include "analysis/plot/geometry.hpp"

namespace kvscope::gui {

using Polyline = std::vector<plot::Point>;

/// The parts of a line inside `box`. `distance` (of equal shape) says how far along the line every
/// point lies, so that dashes keep their places.
struct ClippedLine {
  Polyline points;
  std::vector<double> distance;
};
std::vector<ClippedLine> clip_line(std::span<const plot::Point> points, const plot::Rect& box);

/// The strokes of a line with `pattern` (lengths of strokes and gaps in turn, all positive). Both
/// in the same unit; at most kMostDashes of them.
std::vector<Polyline> dash_line(const ClippedLine& line, std::span<const double> pattern);
inline constexpr std::size_t kMostDashes = 20000;

/// Cut where the line turns back by more than a right angle.
std::vector<Polyline> split_at_sharp_turns(Polyline line);

}  // namespace kvscope::gui
