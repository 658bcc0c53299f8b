// A cloud of many coloured points, the camera that looks at it, and which point lies under the
// mouse.
//
// Points live in data coordinates of up to three axes. A Camera is the linear map from there to
// pixels (x to the right, y downwards) and to a depth; PlaneView and Orbit make cameras.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/plot/colour.hpp"

namespace kvscope::gui {

using CloudPoint = std::array<float, 3>;  // flat clouds have 0 as the third coordinate

/// Points that are drawn alike.
struct CloudSet {
  std::size_t begin = 0;  // of Cloud::at
  std::size_t end = 0;
  float size = 1.0f;     // radius, times the view's
  float opacity = 1.0f;  // of one point
};

/// The points, by set; later sets lie on top in flat views.
struct Cloud {
  std::vector<CloudPoint> at;
  std::vector<plot::Colour> colour;  // one per point; opaque, sets have the opacity
  std::vector<CloudSet> sets;        // in order, together [0, at.size())

  /// Appends a set; `points` and `colours` are of equal length.
  void add(const std::vector<CloudPoint>& points, const std::vector<plot::Colour>& colours,
           float size, float opacity);
};

/// A box, and how far from its middle the farthest point lies.
struct CloudBox {
  CloudPoint low{};
  CloudPoint high{};
  double radius = 0.0;
  CloudPoint middle() const;
};
/// The smallest one around the finite points; empty without any.
std::optional<CloudBox> box_of(const std::vector<CloudPoint>& points);

/// From data to pixels: pixel_x = offset[0] + right . p, pixel_y = offset[1] + down . p. `depth` is
/// 0 at the back and 1 at the front.
struct Camera {
  std::array<double, 3> right{};
  std::array<double, 3> down{};
  std::array<double, 3> toward{};  // all zero: a flat view, in which every depth is 1
  std::array<double, 3> offset{};  // of x, y and depth

  std::array<float, 3> project(const CloudPoint& p) const;
  bool is_flat() const { return toward == std::array<double, 3>{}; }
  bool operator==(const Camera&) const = default;
};

/// Finds the nearest of projected points quickly: cells of a few pixels, sorted once.
class PointIndex {
 public:
  /// Of [0, width) x [0, height) pixels; points outside are never found.
  PointIndex(const std::vector<CloudPoint>& points, const Camera& camera, float width,
             float height);
  /// The point nearest to (x, y) within `radius` pixels; among equally near ones the one in front,
  /// then the later one. Empty if there is none.
  std::optional<std::size_t> nearest(float x, float y, float radius) const;

 private:
  std::size_t cell_of(float x, float y) const;
  static constexpr float kCell = 8.0f;  // pixels
  int columns_ = 0;
  int rows_ = 0;
  std::vector<std::uint32_t> first_;          // [cells + 1] into points_
  std::vector<std::uint32_t> points_;         // by cell, ascending in each
  std::vector<std::array<float, 3>> pixels_;  // of points_, in the same order
};

}  // namespace kvscope::gui
