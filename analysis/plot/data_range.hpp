// Which numbers the axes of a panel must show.
#pragma once

#include "analysis/plot/figure.hpp"

namespace kvscope::plot {

struct PanelRanges {
  Range x;
  Range y;
  Range colour;
};

/// Per panel of the figure: axes as asked, else from the data with some room, shared where the
/// figure shares them. Heat maps fill their panels.
std::vector<PanelRanges> ranges_of(const Figure& figure);

}  // namespace kvscope::plot
