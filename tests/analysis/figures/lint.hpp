// What a reader would stumble over in a drawn figure, found by its layout and by the calls of its
// painting: every figure that a test draws goes through here.
#pragma once

#include <string>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "analysis/plot/theme.hpp"

namespace kvscope::testing {

/// Where a figure is printed.
enum class Width { own, column, page };

/// A sentence for each fault of the figure as the program lays it out at that width:
///  - words that touch others or leave the page, tick labels nearer than a space, names that are
///    left out or cut off
///  - legends and notes over marks of data
///  - a figure higher than a page
///  - an interval without its mean, or not in ink
///  - words with a contrast below 4.5 (WCAG 2.1), marks below 3
///  - a layout that the program refuses, but for a figure of the page in a column
/// Those that kExceptions names are left out.
std::vector<std::string> faults_of(const plot::Figure& figure, Width width = Width::own,
                                   plot::Ground ground = plot::Ground::light);

}  // namespace kvscope::testing
