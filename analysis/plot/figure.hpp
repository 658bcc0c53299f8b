// What a figure is: panels with axes and marks that hold data and roles; no pixels and no colours.
//
// A figure is made once from a result (analysis/figures), laid out for a width (layout.hpp) and
// drawn on any canvas (draw.hpp). Labels may hold formulas between dollar signs (rich_text.hpp).
// NaN in data is a gap; positions beyond an axis' range are clipped.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "analysis/plot/colour.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope::plot {

/// What a mark stands for; the theme turns it into colour, marker and dash.
enum class Role {
  series,     // one of several things compared: `slot` says which
  reference,  // what cannot be beaten, or what is compared with: oracle, dense, y = x
  highlight,  // what the reader should look at: a boxed cell, a selected key
  neutral,    // context behind the rest
  ordered,    // one of `n` that have an order (p = 0.5, 0.8, 0.9): colours along one scale
};

struct Tone {
  Role role = Role::series;
  int slot = 0;    // of a series the same thing has the same slot in every figure
  int n = 1;       // of ordered ones: how many there are
  int source = 0;  // the same thing from elsewhere: its colour with another dash and marker
  bool operator==(const Tone&) const = default;
};

/// Two ends of an axis or a range.
struct Range {
  double low = 0.0;
  double high = 1.0;
  bool operator==(const Range&) const = default;
};

/// A curve through points in order, with an optional band around it.
struct Line {
  std::string label;  // in the legend; empty = none
  Tone tone;
  std::vector<double> x;
  std::vector<double> y;
  std::vector<double> low;  // empty, or one per point
  std::vector<double> high;
  bool markers = true;
  bool steps = false;           // staircase: y holds from x to the next x
  std::vector<std::size_t> of;  // as Scatter::of

  void add(double at_x, double at_y) {
    x.push_back(at_x);
    y.push_back(at_y);
  }
  void add(double at_x, double at_y, Range band) {
    add(at_x, at_y);
    low.push_back(band.low);
    high.push_back(band.high);
  }
};

/// The points whose band has no neighbour to be a surface with: their intervals are drawn as bars.
std::vector<std::size_t> lone_intervals(const Line& line);

/// Too many points for a marker on each and for dashes to be seen: drawn solid, with some markers.
inline bool is_dense(const Line& line) {
  return line.x.size() > 60;
}

/// Points. With `value` they take colours from the panel's colour axis instead of their role's.
struct Scatter {
  std::string label;
  Tone tone;
  std::vector<double> x;
  std::vector<double> y;
  std::vector<double> value;
  double size = 1.0;     // times the theme's marker size
  double opacity = 1.0;  // for clouds
  /// Empty, or one per point: the row, key or query that it stands for, in the numbers of who made
  /// the figure. Nothing of it is drawn; a window says it of the point under the mouse.
  std::vector<std::size_t> of;

  void add(double at_x, double at_y) {
    x.push_back(at_x);
    y.push_back(at_y);
  }
  void add(double at_x, double at_y, std::size_t what) {
    add(at_x, at_y);
    of.push_back(what);
  }
};

/// A matrix as an image over [x.low, x.high] x [y.low, y.high], on linear axes; row 0 lies at
/// y.low. NaN = masked, which is drawn apart from every value.
struct HeatMap {
  Index n_rows = 0;
  Index n_cols = 0;
  std::vector<float> values;  // [n_rows, n_cols]
  Range x;
  Range y;
  bool print_values = false;  // the number in each cell, where it fits
  bool show_masked = true;    // false: cells without a value show the ground (densities)
};

/// A straight line across the panel.
struct Rule {
  enum class Kind { vertical, horizontal, diagonal };  // diagonal: y = x
  Kind kind = Kind::horizontal;
  double at = 0.0;
  std::string label;  // in the legend; empty = none
  Tone tone{Role::reference, 0};
};

/// Outlines of rectangles, in data coordinates.
struct Boxes {
  std::string label;
  Tone tone{Role::highlight, 0};
  std::vector<Range> x;
  std::vector<Range> y;
};

/// A filled area between two curves over x, behind everything: a region with a meaning.
struct Area {
  std::string label;
  Tone tone{Role::neutral, 0};
  std::vector<double> x;
  std::vector<double> low;
  std::vector<double> high;
  double opacity = 0.13;
};

/// Words inside a panel, at a place given as parts of its width and height (0, 0 = top left).
struct Note {
  std::string text;  // may hold line breaks
  double x = 0.0;
  double y = 0.0;
  enum class Align { left, centre, right } align = Align::left;
  /// Of a note that belongs to a cell: how much of the panel's width and height it may take. It has
  /// a pale ground, is a little smaller where it would take more, and left out, from the last line
  /// on, where it would be too small. 0: as much as it needs.
  double room_x = 0.0;
  double room_y = 0.0;
};

using Mark = std::variant<Area, HeatMap, Line, Scatter, Rule, Boxes, Note>;

enum class ScaleKind {
  linear,
  log10,  // ticks at powers of ten
  log2,   // ticks at powers of two
};

/// How numbers on an axis are written.
enum class TickFormat {
  number,
  percent,  // 0.25 as 25 %
  tokens,   // 32768 as 32k (k = 1024)
  bytes,    // 2048 as 2 KiB
};

struct Tick {
  double at = 0.0;
  std::string label;
};

struct Axis {
  std::string label;
  ScaleKind scale = ScaleKind::linear;
  std::optional<Range> range;  // empty: from the data, rounded outwards on linear axes
  std::vector<Tick> ticks;     // empty: chosen
  bool has_names = false;      // ticks are names, of which none may be left out: y alone
  TickFormat format = TickFormat::number;
  bool reversed = false;       // x from right to left, y from top to bottom
  bool whole_numbers = false;  // ticks at integers only
};

/// Which numbers the colours of a panel's heat maps and valued points stand for.
struct ColourAxis {
  Axis axis;  // label, scale (linear or log10), range, ticks, format
  ColourMap map = ColourMap::sequential;
  bool show_bar = true;
  std::string masked_label;  // names the masked cells in the legend; empty = not named
};

enum class LegendPlace { none, inside, above };

struct Panel {
  std::string title;
  Axis x;
  Axis y;
  std::vector<Mark> marks;
  std::optional<ColourAxis> colour;
  double aspect = 0.75;                    // height / width of the frame
  bool equal_scales = false;               // a square frame, one range unless both axes have one
  bool grid = true;                        // faint lines at the ticks
  LegendPlace legend = LegendPlace::none;  // of this panel alone
};

/// The width a figure is made for: one text column, or the whole page.
enum class Span { column, full };

struct Figure {
  std::string name;                  // "budget"
  std::string title;                 // above everything; papers put it into the caption instead
  std::vector<std::string> caption;  // sentences: what is shown, n, what was reduced or left out
  std::vector<Panel> panels;
  int columns = 1;       // panels per row
  bool share_x = false;  // panels of a column have one x range; inner labels are left out
  bool share_y = false;  // panels of a row have one y range; inner labels are left out
  LegendPlace legend = LegendPlace::none;  // one legend for all panels: none or above
  Span span = Span::column;
};

/// Points of a mark that have a place, and legend entries, whatever its kind.
std::size_t count_points(const Mark& mark);

/// Throws ConfigError unless the figure can be drawn: a panel, at least one finite number in each,
/// arrays of equal length, ranges with low < high, positive ranges on logarithmic axes.
void check_figure(const Figure& figure);

}  // namespace kvscope::plot
