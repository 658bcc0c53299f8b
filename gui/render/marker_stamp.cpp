#include "gui/render/marker_stamp.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

namespace kvscope::gui {

namespace {

using plot::Point;

std::vector<Point> corners_of(plot::MarkerShape shape, double radius) {
  std::vector<Point> corners;
  if (shape == plot::MarkerShape::circle) {
    const int n = radius < 2.5 ? 8 : radius < 6.0 ? 12 : 24;
    for (int i = 0; i < n; ++i) {
      const double angle = 2.0 * std::numbers::pi * (i + 0.5) / n;
      corners.push_back({radius * std::cos(angle), radius * std::sin(angle)});
    }
    return corners;
  }
  for (const Point& p : plot::marker_outline(shape)) {
    corners.push_back({radius * p.x, radius * p.y});
  }
  return corners;
}

/// Where a corner goes when both of its edges move outwards by `by`.
Point moved(Point before, Point corner, Point after, double by) {
  const auto normal = [](Point a, Point b) {
    const double length = std::max(1e-9, std::hypot(b.x - a.x, b.y - a.y));
    return Point{(b.y - a.y) / length, -(b.x - a.x) / length};
  };
  const Point n0 = normal(before, corner);
  const Point n1 = normal(corner, after);
  const double scale = by / std::max(0.3, 1.0 + n0.x * n1.x + n0.y * n1.y);
  return {corner.x + scale * (n0.x + n1.x), corner.y + scale * (n0.y + n1.y)};
}

}  // namespace

MarkerStamp::MarkerStamp(plot::MarkerShape shape, double radius) {
  const std::vector<Point> corners = corners_of(shape, std::max(radius, 0.6));
  const std::size_t n = corners.size();
  const auto add = [&](Point p) {
    places_.push_back({static_cast<float>(p.x), static_cast<float>(p.y)});
  };
  add({0.0, 0.0});
  for (double by : {-0.5, 0.5}) {
    for (std::size_t i = 0; i < n; ++i) {
      add(moved(corners[(i + n - 1) % n], corners[i], corners[(i + 1) % n], by));
    }
  }
  // every marker's outline can be seen whole from its middle
  for (std::size_t i = 0; i < n; ++i) {
    const auto a = static_cast<ImDrawIdx>(1 + i);
    const auto b = static_cast<ImDrawIdx>(1 + (i + 1) % n);
    const auto outer_a = static_cast<ImDrawIdx>(a + n);
    const auto outer_b = static_cast<ImDrawIdx>(b + n);
    indices_.insert(indices_.end(), {0, a, b, a, outer_a, outer_b, a, outer_b, b});
  }
}

void MarkerStamp::draw(ImDrawList& list, ImVec2 at, ImU32 colour) const {
  list.PrimReserve(static_cast<int>(indices_.size()), static_cast<int>(places_.size()));
  const auto base = static_cast<ImDrawIdx>(list._VtxCurrentIdx);
  const ImVec2 white = ImGui::GetFontTexUvWhitePixel();
  const ImU32 clear = colour & ~IM_COL32_A_MASK;
  const std::size_t first_outer = 1 + places_.size() / 2;
  for (ImDrawIdx index : indices_) list.PrimWriteIdx(static_cast<ImDrawIdx>(base + index));
  for (std::size_t i = 0; i < places_.size(); ++i) {
    list.PrimWriteVtx({at.x + places_[i].x, at.y + places_[i].y}, white,
                      i < first_outer ? colour : clear);
  }
}

}  // namespace kvscope::gui
