// Points, sizes and rectangles on the page: in points (1/72 inch), y downwards.
#pragma once

namespace kvscope::plot {

struct Point {
  double x = 0.0;
  double y = 0.0;
};

struct Size {
  double w = 0.0;
  double h = 0.0;
};

struct Rect {
  double x = 0.0;
  double y = 0.0;
  double w = 0.0;
  double h = 0.0;
  double right() const { return x + w; }
  double bottom() const { return y + h; }
  Point centre() const { return {x + 0.5 * w, y + 0.5 * h}; }
  bool contains(Point p) const { return p.x >= x && p.x <= right() && p.y >= y && p.y <= bottom(); }
};

}  // namespace kvscope::plot
