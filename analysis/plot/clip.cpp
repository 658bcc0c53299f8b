#include "analysis/plot/clip.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

namespace kvscope::plot {

namespace {

Point between(Point a, Point b, double t) {
  return {a.x + t * (b.x - a.x), a.y + t * (b.y - a.y)};
}

bool is_finite(Point p) {
  return std::isfinite(p.x) && std::isfinite(p.y);
}

/// The part of a segment inside the box as two numbers in [0, 1] (Liang and Barsky's clipping).
std::optional<std::pair<double, double>> inside(Point a, Point b, const Rect& box) {
  if (!is_finite(a) || !is_finite(b)) return std::nullopt;
  double t0 = 0.0;
  double t1 = 1.0;
  const double p[] = {a.x - b.x, b.x - a.x, a.y - b.y, b.y - a.y};
  const double q[] = {a.x - box.x, box.right() - a.x, a.y - box.y, box.bottom() - a.y};
  for (int edge = 0; edge < 4; ++edge) {
    if (p[edge] == 0.0) {
      if (q[edge] < 0.0) return std::nullopt;
      continue;
    }
    const double t = q[edge] / p[edge];
    if (p[edge] < 0.0) t0 = std::max(t0, t);
    if (p[edge] > 0.0) t1 = std::min(t1, t);
  }
  if (!(t0 <= t1)) return std::nullopt;
  return std::pair{t0, t1};
}

}  // namespace

std::vector<std::vector<Point>> clip_line(std::span<const Point> points, const Rect& box) {
  std::vector<std::vector<Point>> pieces;
  bool is_open = false;  // the last piece ends at the point before
  for (std::size_t i = 1; i < points.size(); ++i) {
    const Point a = points[i - 1];
    const Point b = points[i];
    const auto part = inside(a, b, box);
    if (!part) {
      is_open = false;
      continue;
    }
    if (!is_open || part->first > 0.0) pieces.push_back({between(a, b, part->first)});
    pieces.back().push_back(between(a, b, part->second));
    is_open = part->second == 1.0;
  }
  return pieces;
}

std::vector<Point> clip_polygon(std::span<const Point> outline, const Rect& box) {
  std::vector<Point> points;
  std::ranges::copy_if(outline, std::back_inserter(points), is_finite);
  // signed distance to each edge's line, positive inside
  const auto depth = [&](int edge, Point p) {
    switch (edge) {
      case 0:
        return p.x - box.x;
      case 1:
        return box.right() - p.x;
      case 2:
        return p.y - box.y;
      default:
        return box.bottom() - p.y;
    }
  };
  for (int edge = 0; edge < 4; ++edge) {
    std::vector<Point> kept;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const Point a = points[i];
      const Point b = points[(i + 1) % points.size()];
      const double da = depth(edge, a);
      const double db = depth(edge, b);
      if (da >= 0.0) kept.push_back(a);
      if ((da >= 0.0) != (db >= 0.0)) kept.push_back(between(a, b, da / (da - db)));
    }
    points = std::move(kept);
  }
  return points;
}

}  // namespace kvscope::plot
