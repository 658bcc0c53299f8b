// The numbers that a figure shows, as CSV: what a reader needs to draw it again elsewhere.
#pragma once

#include <string>

#include "analysis/plot/figure.hpp"

namespace kvscope {

/// Columns panel, panel_title, mark, series, x, y, low, high, value, and what these are: x_axis,
/// y_axis, value_axis (the axes' labels with their units), x_tick and y_tick (the words at this
/// place of the axis, if there are some: what a cell of a map stands for). One line per point, bar
/// (x and low-high its edges), cell that has a value (x and y its centre) or rule, in drawing
/// order. Panels are numbered from 1; what does not apply is empty.
std::string figure_csv(const plot::Figure& figure);

}  // namespace kvscope
