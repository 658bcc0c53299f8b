#include "analysis/plot/canvas.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace kvscope::plot {

namespace {

/// Corners on circles of alternating radius, the first one at the top.
std::vector<Point> corners(int n, double outer, double inner, double turn_degrees = 0.0) {
  std::vector<Point> points;
  for (int i = 0; i < n; ++i) {
    const double angle = (turn_degrees + 360.0 * i / n) * std::numbers::pi / 180.0;
    const double radius = i % 2 == 0 ? outer : inner;
    points.push_back({radius * std::sin(angle), -radius * std::cos(angle)});
  }
  return points;
}

/// A plus sign with arms of half width `arm`, turned by `turn` degrees.
std::vector<Point> plus_sign(double arm, double turn_degrees) {
  const double c = std::cos(turn_degrees * std::numbers::pi / 180.0);
  const double s = std::sin(turn_degrees * std::numbers::pi / 180.0);
  std::vector<Point> points;
  for (Point p : {Point{-arm, -1}, Point{arm, -1}, Point{arm, -arm}, Point{1, -arm}, Point{1, arm},
                  Point{arm, arm}, Point{arm, 1}, Point{-arm, 1}, Point{-arm, arm}, Point{-1, arm},
                  Point{-1, -arm}, Point{-arm, -arm}}) {
    points.push_back({c * p.x - s * p.y, s * p.x + c * p.y});
  }
  return points;
}

std::vector<Point> outline_of(MarkerShape shape) {
  switch (shape) {  // radii that look equally large
    case MarkerShape::circle:
      return corners(24, 1.0, 1.0);
    case MarkerShape::square:
      return corners(4, 1.25, 1.25, 45.0);
    case MarkerShape::triangle_up:
      return corners(3, 1.3, 1.3);
    case MarkerShape::diamond:
      return corners(4, 1.3, 1.3);
    case MarkerShape::triangle_down:
      return corners(3, 1.3, 1.3, 180.0);
    case MarkerShape::plus:
      return plus_sign(0.32, 0.0);
    case MarkerShape::cross:
      return plus_sign(0.32, 45.0);
    case MarkerShape::pentagon:
      return corners(5, 1.15, 1.15);
    case MarkerShape::star:
      return corners(10, 1.4, 0.6);
  }
  return {};
}

}  // namespace

std::vector<double> dash_pattern(Dash dash, double width) {
  if (dash == Dash::dashed) return {4.0 * width, 2.0 * width};
  if (dash == Dash::dotted) return {1.1 * width, 1.4 * width};
  if (dash == Dash::dash_dot) return {5.0 * width, 1.6 * width, 1.1 * width, 1.6 * width};
  return {};
}

std::span<const Point> marker_outline(MarkerShape shape) {
  static const auto outlines = [] {
    std::array<std::vector<Point>, 9> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = outline_of(static_cast<MarkerShape>(i));
    return all;
  }();
  return outlines[static_cast<std::size_t>(shape)];
}

int crisp_factor(const Image& image) {
  return std::clamp(600 / std::max({image.width, image.height, 1}), 1, 64);
}

Image enlarge(const Image& image, int factor) {
  Image out{image.width * factor, image.height * factor, {}};
  out.rgba.resize(static_cast<std::size_t>(out.width) * static_cast<std::size_t>(out.height) * 4);
  auto to = out.rgba.begin();
  for (int y = 0; y < out.height; ++y) {
    for (int x = 0; x < out.width; ++x) {
      const auto pixel = static_cast<std::ptrdiff_t>(y / factor) * image.width + x / factor;
      to = std::copy_n(image.rgba.begin() + 4 * pixel, 4, to);
    }
  }
  return out;
}

}  // namespace kvscope::plot
