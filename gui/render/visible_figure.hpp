// A figure cut down to what a window shows of it, so that drawing costs what is visible and not
// what there is.
#pragma once

#include <vector>

#include "analysis/plot/data_range.hpp"
#include "analysis/plot/figure.hpp"
#include "analysis/plot/layout.hpp"

namespace kvscope::gui {

/// What never changes while a figure is zoomed: ranges over all of its data.
struct FigureFacts {
  std::vector<plot::PanelRanges> ranges;
  std::vector<std::vector<bool>> has_masked;  // [panel][mark] a heat map with masked cells
  explicit FigureFacts(const plot::Figure& figure);
  FigureFacts() = default;
};

/// Apart from rounding.
bool same_range(plot::Range a, plot::Range b);

/// Of the points of all large clouds that ranges show, every n-th is drawn.
struct Thinning {
  std::size_t stride = 1;
  bool operator==(const Thinning&) const = default;
};
/// So many that at most `most` points are left. Strides are powers of two: what is left at one is
/// left at all smaller ones, so that nothing flickers while a figure is zoomed.
Thinning thinning_to(const plot::Figure& figure, const std::vector<plot::PanelRanges>& visible,
                     std::size_t most);

/// The figure with explicit ranges, without the points of large clouds that lie outside or that
/// `thinning` leaves out, and with small maps in place of large ones: enough for its layout.
/// `visible`: ranges shown, per panel.
plot::Figure figure_for_layout(const plot::Figure& figure, const FigureFacts& facts,
                               const std::vector<plot::PanelRanges>& visible,
                               Thinning thinning = {});

/// Pixels that pictures (maps, large clouds) may have per pixel of the screen so that all together
/// have about `most`: 1, 1/2, 1/3 ... Small maps do not count.
double density_for(const plot::Figure& figure, const plot::Layout& layout, double pixels_per_point,
                   double most);

/// Replaces the maps by what `layout` shows of them, at most one cell per pixel: the mean of the
/// cells that share one, masked ones left out.
void fit_maps(const plot::Figure& figure, const std::vector<plot::PanelRanges>& visible,
              const plot::Layout& layout, double pixels_per_point, plot::Figure& shown);

/// Panels per row with which panels of these aspects fill a page of `size` points best.
int best_columns(const plot::Figure& figure, plot::Size size, const plot::Theme& theme);

/// The figure with that many panels per row; labels that panels share are repeated where they no
/// longer stand in one row or column.
void set_columns(plot::Figure& figure, int columns, const std::vector<plot::PanelRanges>& ranges);

}  // namespace kvscope::gui
