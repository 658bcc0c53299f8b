// Marks as pixels: heat maps through their colour map, and clouds of points too many for vectors.
#pragma once

#include <span>

#include "analysis/plot/canvas.hpp"
#include "analysis/plot/figure.hpp"
#include "analysis/plot/scale.hpp"

namespace kvscope::plot {

/// One pixel per cell; the first row of the image is the one on top of the page. NaN takes the
/// colour `masked`.
Image heat_map_image(const HeatMap& map, const Scale& colours, ColourMap colour_map, Colour masked,
                     bool flip_x, bool flip_y);

/// Discs of `radius` points at places on the page, inside `frame`. Points that fall on the same
/// pixel are laid over each other as often as there are of them. `colours`: one, or one per place.
Image cloud_image(std::span<const Point> places, std::span<const Colour> colours, double radius,
                  const Rect& frame, double pixels_per_point);

}  // namespace kvscope::plot
