// Figures in small panels: data first, words as far as they fit.
#pragma once

#include <string>

#include "analysis/plot/figure.hpp"

namespace kvscope::gui {

/// The figure of one panel without title, legend and the colour bar's label, with short axis labels
/// instead of its own.
plot::Figure compact_figure(plot::Figure figure, std::string x_label, std::string y_label);

/// Below this width or height, in points of the interface, words would take the room of the data.
inline constexpr float kLittleWidth = 420.0f;
inline constexpr float kLittleHeight = 300.0f;

/// What its marks cost to keep.
std::size_t figure_bytes(const plot::Figure& figure);

/// A figure in the cache.
struct MadeFigure {
  plot::Figure figure;
  std::size_t bytes() const { return sizeof *this + figure_bytes(figure); }
};

}  // namespace kvscope::gui
