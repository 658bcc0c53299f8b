// What of a figure lies under the cursor.
#pragma once

#include <optional>

#include "analysis/plot/figure.hpp"
#include "analysis/plot/layout.hpp"

namespace kvscope::gui {

/// What lies under the cursor.
struct FigureHit {
  std::size_t panel = 0;
  double x = 0.0;  // of the cursor, in data
  double y = 0.0;
  /// The nearest point within reach, or the cell of a heat map (the topmost).
  std::optional<std::size_t> mark;   // in the panel's marks
  std::optional<std::size_t> point;  // in the mark's arrays: Line, Scatter
  std::optional<std::size_t> of;     // what the point stands for: plot::Scatter::of
  double point_x = 0.0;              // its data
  double point_y = 0.0;
  std::optional<Index> row;     // HeatMap
  std::optional<Index> col;     // HeatMap
  std::optional<double> value;  // of the cell (NaN: masked), of a Scatter's colour
  bool clicked = false;         // released here without a drag, in this frame
};

/// `cursor` and `reach` in points of the layout. Empty outside all panels' frames.
std::optional<FigureHit> figure_hit(const plot::Figure& figure, const plot::Layout& layout,
                                    plot::Point cursor, double reach);

}  // namespace kvscope::gui
