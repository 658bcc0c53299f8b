// One figure of several tables in one: a panel, or a row of panels, for each value of some columns.
#pragma once

#include "analysis/figures/figure_kind.hpp"

namespace kvscope::figures {

/// What the kind makes of the rows of each value of the columns that input.options.panels names, in
/// the order of the table, side by side; a method looks the same in all. Throws ConfigError for an
/// unknown column, more panels than can be looked at, and what the kind throws, with the panel.
plot::Figure panels_by(const FigureKind& kind, const FigureInput& input);

}  // namespace kvscope::figures
