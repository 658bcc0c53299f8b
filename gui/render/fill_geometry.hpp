// Areas as triangles, since a window draws nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/plot/geometry.hpp"

namespace kvscope::gui {

/// Triangles over points: three indices each.
struct Triangles {
  std::vector<plot::Point> points;
  std::vector<std::uint32_t> indices;
};

/// Fills a polygon. Bands (outlines that run once to one side and back) become strips in linear
/// time, whatever their number of corners; other outlines lose their ears one by one, which is
/// quadratic: beyond kMostEarCorners corners they are thinned first.
Triangles triangulate(std::span<const plot::Point> outline);
inline constexpr std::size_t kMostEarCorners = 2000;

/// The part of a polygon inside a box (Sutherland and Hodgman): what lies far outside would lose
/// its precision in 32 bits.
std::vector<plot::Point> clip_polygon(std::span<const plot::Point> outline, const plot::Rect& box);

}  // namespace kvscope::gui
