// Whether a laid-out figure can be read, and the layout that can be.
#pragma once

#include "analysis/plot/layout.hpp"

namespace kvscope::plot {

/// Whether fewer panels may stand side by side than the figure's columns say.
enum class Columns { as_asked, at_most };

/// The layout with as many panels side by side as can be read; sets the figure's columns. Throws
/// ConfigError if none is legible, with the width and the reason.
Layout legible_layout(Figure& figure, double width, std::optional<double> height, Columns columns,
                      const Theme& theme, const TextMetrics& metrics);

}  // namespace kvscope::plot
