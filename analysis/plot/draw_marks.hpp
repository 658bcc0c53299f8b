// Draws the marks of one panel, inside its frame.
#pragma once

#include <string>

#include "analysis/plot/canvas.hpp"
#include "analysis/plot/figure.hpp"
#include "analysis/plot/layout.hpp"
#include "analysis/plot/theme.hpp"

namespace kvscope::plot {

/// In the order of the panel; the caller clips to the frame.
void draw_marks(const Panel& panel, const PanelLayout& layout, const Theme& theme, Canvas& canvas);

/// A note's lines as far as they have room, and the size of their letters: that of ticks; of a
/// cell's note as much less as it needs, down to three quarters. Size 0: even one line has no room.
struct FittedNote {
  std::string text;
  double size = 0.0;
};
FittedNote fit_note(const Note& note, const Rect& frame, const Theme& theme,
                    const TextMetrics& metrics);

}  // namespace kvscope::plot
