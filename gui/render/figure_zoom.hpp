// Which part of a figure's axes is visible: zooming and panning as arithmetic on ranges.
#pragma once

#include <optional>
#include <vector>

#include "analysis/plot/data_range.hpp"
#include "analysis/plot/figure.hpp"
#include "analysis/plot/scale.hpp"

namespace kvscope::gui {

enum class AxisOf { x, y };

/// Ranges stay within what the figure shows whole: zooming out ends there, panning keeps the middle
/// of the view inside (heat maps: all of it). Axes that the figure shares move together.
class FigureZoom {
 public:
  /// `whole`: ranges_of(figure). The zoom is kept if the axes are the same ones and what is visible
  /// still overlaps their ranges.
  void set_figure(const plot::Figure& figure, const std::vector<plot::PanelRanges>& whole);
  void reset();

  /// Makes what is visible `factor` times as wide (below 1: zooms in), keeping what lies at `unit`
  /// (0 to 1 along the axis) where it is.
  void zoom(std::size_t panel, AxisOf axis, double unit, double factor);
  /// Moves the view by a part of itself.
  void pan(std::size_t panel, AxisOf axis, double units);

  bool is_zoomed() const;
  plot::Range visible(std::size_t panel, AxisOf axis) const;
  /// Sets the ranges of the axes that are zoomed.
  void apply(plot::Figure& figure) const;

 private:
  struct View {
    plot::ScaleKind kind = plot::ScaleKind::linear;
    plot::Range whole;
    std::optional<plot::Range> zoomed;
    bool reversed = false;
    bool stays_inside = false;  // a heat map's axis
    int group = -1;             // views of one group and axis move together
    std::string label;

    plot::Scale scale(plot::Range range) const { return {kind, range, reversed}; }
    plot::Range visible() const { return zoomed.value_or(whole); }
  };
  using Views = std::vector<View>;
  Views& views(AxisOf axis) { return axis == AxisOf::x ? x_ : y_; }
  const Views& views(AxisOf axis) const { return axis == AxisOf::x ? x_ : y_; }
  /// What is seen from `from` to `to` on the axis as it is now becomes the view.
  void show(std::size_t panel, AxisOf axis, double from, double to);

  Views x_;
  Views y_;
};

}  // namespace kvscope::gui
