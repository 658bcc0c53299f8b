#include "gui/render/stroke_geometry.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

namespace kvscope::gui {

namespace {

using plot::Point;

Point between(Point a, Point b, double t) {
  return {a.x + t * (b.x - a.x), a.y + t * (b.y - a.y)};
}

/// The part of a segment inside the box as two numbers in [0, 1] (Liang and Barsky's clipping).
std::optional<std::pair<double, double>> inside(Point a, Point b, const plot::Rect& box) {
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
  if (t0 > t1) return std::nullopt;
  return std::pair{t0, t1};
}

}  // namespace

std::vector<ClippedLine> clip_line(std::span<const Point> points, const plot::Rect& box) {
  std::vector<ClippedLine> pieces;
  bool is_open = false;  // the last piece ends at the point before
  double along = 0.0;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const Point a = points[i - 1];
    const Point b = points[i];
    const double length = std::hypot(b.x - a.x, b.y - a.y);
    const auto part = inside(a, b, box);
    if (!part) {
      is_open = false;
    } else {
      if (!is_open || part->first > 0.0) {
        pieces.push_back({{between(a, b, part->first)}, {along + part->first * length}});
      }
      pieces.back().points.push_back(between(a, b, part->second));
      pieces.back().distance.push_back(along + part->second * length);
      is_open = part->second == 1.0;
    }
    along += length;
  }
  return pieces;
}

std::vector<Polyline> dash_line(const ClippedLine& line, std::span<const double> pattern) {
  std::vector<Polyline> strokes;
  const double period = std::accumulate(pattern.begin(), pattern.end(), 0.0);
  if (line.points.size() < 2 || !(period > 0.0)) return strokes;

  // where in the pattern the line begins
  double rest = std::fmod(line.distance.front(), period);
  std::size_t part = 0;
  while (rest >= pattern[part]) {
    rest -= pattern[part];
    part = (part + 1) % pattern.size();
  }
  rest = pattern[part] - rest;  // of the stroke or gap at hand
  const auto is_stroke = [&] { return part % 2 == 0; };
  if (is_stroke()) strokes.push_back({line.points.front()});

  for (std::size_t i = 1; i < line.points.size(); ++i) {
    const double length = line.distance[i] - line.distance[i - 1];
    double done = 0.0;
    while (length - done > rest && strokes.size() < kMostDashes) {
      done += rest;
      const Point here = between(line.points[i - 1], line.points[i], done / length);
      if (is_stroke()) strokes.back().push_back(here);
      part = (part + 1) % pattern.size();
      rest = pattern[part];
      if (is_stroke()) strokes.push_back({here});
    }
    rest -= length - done;
    if (is_stroke()) strokes.back().push_back(line.points[i]);
  }
  return strokes;
}

std::vector<Polyline> split_at_sharp_turns(Polyline line) {
  std::vector<Polyline> pieces;
  std::size_t begin = 0;
  for (std::size_t i = 1; i + 1 < line.size(); ++i) {
    const Point a = line[i - 1];
    const Point b = line[i];
    const Point c = line[i + 1];
    const double turn = (b.x - a.x) * (c.x - b.x) + (b.y - a.y) * (c.y - b.y);
    if (turn >= 0.0) continue;
    pieces.emplace_back(line.begin() + static_cast<std::ptrdiff_t>(begin),
                        line.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    begin = i;
  }
  if (begin == 0) {
    pieces.push_back(std::move(line));
  } else {
    pieces.emplace_back(line.begin() + static_cast<std::ptrdiff_t>(begin), line.end());
  }
  return pieces;
}

}  // namespace kvscope::gui
