// Where everything of a figure goes on the page: pure arithmetic, so that it can be tested without
// drawing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/plot/canvas.hpp"
#include "analysis/plot/figure.hpp"
#include "analysis/plot/scale.hpp"
#include "analysis/plot/theme.hpp"

namespace kvscope::plot {

/// One line of words at its place.
struct PlacedText {
  Point at;  // on the baseline
  std::string text;
  TextStyle style;
  bool is_title = false;  // of the figure or a panel, not of an axis
};

struct PlacedTick {
  double at = 0.0;  // page coordinate along the axis
  std::string label;
};

struct AxisLayout {
  Scale scale;
  std::vector<PlacedTick> ticks;
  std::vector<double> minor;  // page coordinates
  bool labelled = true;       // false: an inner axis whose labels stand at its neighbour
};

/// How an entry of the legend is shown.
enum class Symbol { line, marked_line, marker, patch, region, outline, masked };

struct LegendEntry {
  std::string label;
  Tone tone;
  Symbol symbol = Symbol::line;
  bool has_band = false;
  bool solid = false;     // whatever the tone's dash
  double opacity = 0.13;  // of a region
};

struct LegendLayout {
  Rect frame;
  bool boxed = false;       // inside a panel: needs a ground of its own
  bool hides_data = false;  // there was no free place
  std::vector<LegendEntry> entries;
  std::vector<Point> places;  // per entry: left end of the symbol, at half height
};

struct ColourBarLayout {
  Rect rect;
  Scale scale;
  std::vector<PlacedTick> ticks;
};

struct PanelLayout {
  Rect frame;
  AxisLayout x;
  AxisLayout y;
  Scale colour;  // of the colour axis, if the panel has one
  std::optional<ColourBarLayout> bar;
  std::optional<LegendLayout> legend;
  /// Data to page; NaN where a logarithmic axis has no place.
  Point place(double data_x, double data_y) const {
    return {frame.x + x.scale.to_unit(data_x) * frame.w,
            frame.bottom() - y.scale.to_unit(data_y) * frame.h};
  }
};

struct Layout {
  Size size;
  std::vector<PanelLayout> panels;
  std::optional<LegendLayout> legend;
  std::vector<PlacedText> words;  // titles and axis labels
};

/// Lengths inside a legend, in points.
struct LegendMetrics {
  double symbol_width;
  double gap;  // symbol to words
  double column_gap;
  double line_height;
  explicit LegendMetrics(const Theme& theme)
      : symbol_width(2.1 * theme.tick_size),
        gap(0.5 * theme.tick_size),
        column_gap(1.3 * theme.tick_size),
        line_height(1.4 * theme.tick_size) {}
};

/// `width` in points; the height follows from the panels' aspects unless `height` says otherwise.
/// Throws ConfigError for a figure that cannot be drawn (check_figure) or that needs more room.
Layout layout_figure(const Figure& figure, double width, std::optional<double> height,
                     const Theme& theme, const TextMetrics& metrics);

}  // namespace kvscope::plot
