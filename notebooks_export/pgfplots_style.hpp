// How colours, dashes, markers and long curves are said in pgfplots.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/plot/theme.hpp"

namespace kvscope {

/// "{rgb,255:red,0;green,114;blue,178}".
std::string tex_colour(plot::Colour colour);

std::string_view tex_dash(plot::Dash dash);

/// The options of a series' marker, `radius` in points.
std::string tex_marker(const plot::SeriesStyle& style, double radius);

/// The name of a filled star, which plotmarks has not; tex_star() defines it as other
/// formats draw it.
inline constexpr const char* kStarMark = "kvscopestar";
std::string tex_star();

/// The option that defines the figure's colour map, in 17 steps.
std::string tex_colour_map(plot::ColourMap map);

/// TeX holds some thousand coordinates: longer curves keep the extremes of each of 600 stretches.
/// Appends to out_x and out_y.
void thin_curve(const std::vector<double>& x, const std::vector<double>& y,
                std::vector<double>& out_x, std::vector<double>& out_y);

}  // namespace kvscope
