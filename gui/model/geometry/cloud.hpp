// Points along up to three axes, and the camera that looks at them.
//
// A Camera is the linear map from data coordinates to those of a picture, and to a depth; Orbit
// makes cameras.
#pragma once

#include <array>
#include <optional>
#include <vector>

namespace kvscope::gui {

using CloudPoint = std::array<float, 3>;  // flat clouds have 0 as the third coordinate

/// A box, and how far from its middle the farthest point lies.
struct CloudBox {
  CloudPoint low{};
  CloudPoint high{};
  double radius = 0.0;
  CloudPoint middle() const;
};
/// The smallest one around the finite points; empty without any.
std::optional<CloudBox> box_of(const std::vector<CloudPoint>& points);

/// From data to a picture: x = offset[0] + right . p, y = offset[1] + down . p. `depth` is 0 at the
/// back and 1 at the front.
struct Camera {
  std::array<double, 3> right{};
  std::array<double, 3> down{};
  std::array<double, 3> toward{};  // all zero: a flat view, in which every depth is 1
  std::array<double, 3> offset{};  // of x, y and depth

  std::array<float, 3> project(const CloudPoint& p) const;
  bool is_flat() const { return toward == std::array<double, 3>{}; }
  bool operator==(const Camera&) const = default;
};

}  // namespace kvscope::gui
