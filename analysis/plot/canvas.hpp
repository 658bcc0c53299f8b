// The drawing interface: what a page, a window or a test log must be able to do to show a figure.
//
// Coordinates are points (1/72 inch) from the top left corner, y downwards. Calls come in painting
// order. push_clip and begin_group nest and are closed in reverse order.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/plot/colour.hpp"
#include "analysis/plot/geometry.hpp"

namespace kvscope::plot {

/// Sizes of text in the one font that every canvas uses; the layout needs nothing else of a font.
class TextMetrics {
 public:
  virtual ~TextMetrics() = default;
  /// Advance width of UTF-8 text in points, at `size` points per em; no kerning.
  virtual double width(std::string_view text, double size) const = 0;
  /// Depth of letters below the baseline, in em (positive).
  virtual double descent() const = 0;
};

enum class Dash { solid, dashed, dotted, dash_dot };

struct Stroke {
  Colour colour;
  double width = 1.0;
  Dash dash = Dash::solid;
};

/// Lengths of strokes and gaps in points for a line width; empty for solid.
std::vector<double> dash_pattern(Dash dash, double width);

enum class MarkerShape {
  circle,
  square,
  triangle_up,
  diamond,
  triangle_down,
  plus,
  cross,
  pentagon,
  star,
};

/// The outline of a marker of unit radius around (0, 0), to be filled; circles have 24 corners.
std::span<const Point> marker_outline(MarkerShape shape);

/// 8-bit RGBA, not premultiplied; row 0 on top.
struct Image {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgba;  // [height, width, 4]
};

/// Every pixel as a square of factor x factor.
Image enlarge(const Image& image, int factor);

/// By how much a small image is enlarged before it goes into a file: many viewers smooth images
/// whatever the file says, and cells of several pixels stay crisp.
int crisp_factor(const Image& image);

enum class Align { left, centre, right };

struct TextStyle {
  double size = 8.0;  // points per em
  Colour colour;
  Align align = Align::left;
  double rotation = 0.0;  // degrees, counter-clockwise as seen; 90 reads upwards
};

class Canvas {
 public:
  virtual ~Canvas() = default;
  /// The metrics of the font that text() uses.
  virtual const TextMetrics& metrics() const = 0;
  /// How finely pictures of clouds are made: what printers resolve, unless the canvas has pixels.
  virtual double pixels_per_point() const { return 300.0 / 72.0; }
  virtual void fill_rect(const Rect& rect, Colour colour) = 0;
  virtual void polyline(std::span<const Point> points, const Stroke& stroke) = 0;
  virtual void polygon(std::span<const Point> points, Colour fill) = 0;
  /// The same marker at every point, `radius` points around it.
  virtual void markers(std::span<const Point> points, MarkerShape shape, double radius,
                       Colour fill) = 0;
  /// Stretched over `rect` without smoothing.
  virtual void image(const Rect& rect, const Image& image) = 0;
  /// `at`: on the baseline, at the left end, centre or right end of the text.
  virtual void text(Point at, std::string_view text, const TextStyle& style) = 0;
  virtual void push_clip(const Rect& rect) = 0;
  virtual void pop_clip() = 0;
  /// Names what follows: a group in SVG, a comment in TeX; others may ignore it.
  virtual void begin_group(std::string_view name) = 0;
  virtual void end_group() = 0;
};

}  // namespace kvscope::plot
