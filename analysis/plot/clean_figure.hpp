// Figures whose every text can be drawn and written by any format.
#pragma once

#include "analysis/plot/figure.hpp"

namespace kvscope::plot {

/// The figure with all of its texts cleaned (core/base/escape.hpp): names of methods, models and
/// traces come from files, and Cairo, XML and TeX each refuse other bytes.
Figure clean_figure(Figure figure);

}  // namespace kvscope::plot
