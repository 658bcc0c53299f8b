// What of a figure lies under the cursor.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/plot/data_range.hpp"
#include "analysis/plot/figure.hpp"
#include "analysis/plot/layout.hpp"

namespace kvscope::gui {

/// What lies under the cursor.
struct FigureHit {
  std::size_t panel = 0;
  double x = 0.0;  // of the cursor, in data
  double y = 0.0;
  /// The nearest point within 6 pixels, or the bar, or the cell of a heat map (the topmost).
  std::optional<std::size_t> mark;   // in the panel's marks
  std::optional<std::size_t> point;  // in the mark's arrays: Line, Scatter
  std::optional<std::size_t> of;     // what the point stands for: plot::Scatter::of
  double point_x = 0.0;              // its data; the middle of a bar
  double point_y = 0.0;
  std::optional<Index> row;     // HeatMap
  std::optional<Index> col;     // HeatMap
  std::optional<double> value;  // of the cell (NaN: masked), of a Scatter's colour
  bool clicked = false;         // released here without a drag, in this frame
};

/// Finds points through a grid over the whole axes, made once per panel whatever the zoom.
class FigurePicker {
 public:
  /// Forgets the figure before. Grids are made when a panel is first asked.
  void set_figure(const plot::Figure& figure, const std::vector<plot::PanelRanges>& whole);

  /// `cursor` and `reach` in points of the layout. Empty outside all panels' frames.
  std::optional<FigureHit> pick(const plot::Figure& figure, const plot::Layout& layout,
                                plot::Point cursor, double reach);

 private:
  struct Entry {
    std::uint32_t mark;
    std::uint32_t point;
  };
  /// Entries of cell c: [start[c], start[c + 1]).
  struct Grid {
    plot::Scale x;
    plot::Scale y;
    std::vector<std::uint32_t> start;
    std::vector<Entry> entries;
    bool is_made = false;
  };
  static void make(const plot::Panel& panel, Grid& grid);
  static bool pick_point(const plot::Panel& panel, const plot::PanelLayout& layout,
                         const Grid& grid, plot::Point cursor, double reach, FigureHit& hit);

  std::vector<Grid> grids_;
};

}  // namespace kvscope::gui
