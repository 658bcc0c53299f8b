#include "gui/render/fill_geometry.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

namespace kvscope::gui {

namespace {

using plot::Point;

/// Twice the area of a triangle, positive if it turns like the axes do.
double cross(Point a, Point b, Point c) {
  return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
}

using Chain = std::vector<Point>;  // x never decreases

/// The two curves of a band, if the outline is one.
std::optional<std::pair<Chain, Chain>> chains_of(std::span<const Point> outline) {
  const std::size_t n = outline.size();
  const auto by_x = [](Point a, Point b) { return a.x < b.x; };
  const auto left =
      static_cast<std::size_t>(std::ranges::min_element(outline, by_x) - outline.begin());
  const double right_x = std::ranges::max_element(outline, by_x)->x;
  // forwards to the right end, then backwards to it; corners on the way must not turn back
  Chain chains[2];
  std::size_t steps_taken = 0;
  for (int direction = 0; direction < 2; ++direction) {
    std::size_t at = left;
    chains[direction].push_back(outline[at]);
    while (chains[direction].back().x < right_x) {
      at = direction == 0 ? (at + 1) % n : (at + n - 1) % n;
      ++steps_taken;
      if (outline[at].x < chains[direction].back().x) return std::nullopt;
      chains[direction].push_back(outline[at]);
    }
  }
  // what lies between the two arrivals is the right edge, all of it at right_x
  if (steps_taken > n) return std::nullopt;
  std::size_t at = (left + chains[0].size() - 1) % n;
  for (std::size_t rest = n - std::min(n, steps_taken); rest > 0; --rest) {
    if (outline[at].x != right_x) return std::nullopt;
    at = (at + 1) % n;
  }
  return std::pair{std::move(chains[0]), std::move(chains[1])};
}

/// Height of a chain at x, which lies in its segment [i, i + 1].
double height_at(const Chain& chain, std::size_t i, double x) {
  if (i + 1 >= chain.size()) return chain.back().y;
  const double width = chain[i + 1].x - chain[i].x;
  if (!(width > 0.0)) return chain[i].y;
  return chain[i].y + (x - chain[i].x) / width * (chain[i + 1].y - chain[i].y);
}

Triangles fill_band(const Chain& a, const Chain& b) {
  Triangles out;
  const auto add_column = [&](double x, double ya, double yb) {
    out.points.push_back({x, ya});
    out.points.push_back({x, yb});
    const auto n = static_cast<std::uint32_t>(out.points.size());
    if (n < 4 || out.points[n - 4].x == x) return;
    out.indices.insert(out.indices.end(), {n - 4, n - 3, n - 2, n - 3, n - 2, n - 1});
  };
  std::size_t i = 0;
  std::size_t j = 0;
  add_column(a[0].x, a[0].y, b[0].y);
  while (i + 1 < a.size() || j + 1 < b.size()) {
    const bool step_a = j + 1 >= b.size() || (i + 1 < a.size() && a[i + 1].x <= b[j + 1].x);
    if (step_a) {
      ++i;
      add_column(a[i].x, a[i].y, height_at(b, j, a[i].x));
    } else {
      ++j;
      add_column(b[j].x, height_at(a, i, b[j].x), b[j].y);
    }
  }
  return out;
}

bool holds(Point a, Point b, Point c, Point p) {
  return cross(a, b, p) > 0.0 && cross(b, c, p) > 0.0 && cross(c, a, p) > 0.0;
}

Triangles clip_ears(std::span<const Point> outline) {
  Triangles out;
  const std::size_t stride = 1 + outline.size() / kMostEarCorners;
  for (std::size_t i = 0; i < outline.size(); i += stride) out.points.push_back(outline[i]);
  const std::vector<Point>& p = out.points;
  double area = 0.0;
  for (std::size_t i = 1; i + 1 < p.size(); ++i) area += cross(p[0], p[i], p[i + 1]);

  std::vector<std::uint32_t> left(p.size());
  std::iota(left.begin(), left.end(), 0U);
  if (area < 0.0) std::reverse(left.begin(), left.end());
  std::size_t at = 0;
  std::size_t failures = 0;
  while (left.size() >= 3) {
    const std::size_t n = left.size();
    at %= n;
    const std::uint32_t ia = left[(at + n - 1) % n];
    const std::uint32_t ib = left[at];
    const std::uint32_t ic = left[(at + 1) % n];
    const bool is_ear =
        cross(p[ia], p[ib], p[ic]) >= 0.0 && std::ranges::none_of(left, [&](std::uint32_t i) {
          return holds(p[ia], p[ib], p[ic], p[i]);
        });
    // an outline that crosses itself may have no ear: then any corner must do
    if (!is_ear && failures < n) {
      ++failures;
      ++at;
      continue;
    }
    failures = 0;
    out.indices.insert(out.indices.end(), {ia, ib, ic});
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return out;
}

}  // namespace

Triangles triangulate(std::span<const Point> outline) {
  if (outline.size() < 3) return {};
  if (const auto chains = chains_of(outline)) return fill_band(chains->first, chains->second);
  return clip_ears(outline);
}

std::vector<Point> clip_polygon(std::span<const Point> outline, const plot::Rect& box) {
  std::vector<Point> points(outline.begin(), outline.end());
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
      if ((da >= 0.0) != (db >= 0.0)) {
        const double t = da / (da - db);
        kept.push_back({a.x + t * (b.x - a.x), a.y + t * (b.y - a.y)});
      }
    }
    points = std::move(kept);
  }
  return points;
}

}  // namespace kvscope::gui
