// The numbers that a figure shows, as CSV: what a reader needs to draw it again elsewhere.
#pragma once

#include <string>

#include "analysis/plot/figure.hpp"

namespace kvscope {

/// Columns panel, mark, series, x, y, low, high, value; one line per point, bar (x and low-high its
/// edges), cell that has a value (x and y its centre) or rule, in drawing order. Panels are
/// numbered from 1; what does not apply is empty.
std::string figure_csv(const plot::Figure& figure);

}  // namespace kvscope
