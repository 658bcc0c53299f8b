// Points along up to three axes, and the camera that looks at them.
//
// A Camera is the linear map from data coordinates to those of a picture, and to a depth; an Orbit
// makes orthographic cameras that look from any side.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "core/base/fields.hpp"

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

/// The direction one looks from, and how near. At yaw = pitch = 0 the first axis points right, the
/// second one up and the third one towards the viewer: the flat view.
struct Orbit {
  double yaw = option(yaw, "yaw", -35.0, "degrees around the second axis",
                      in(-360, 360));  // degrees around the second axis
  double pitch = option(pitch, "pitch", 20.0, "degrees from the plane of the first and third axis",
                        in(-90, 90));  // from above if positive
  double zoom = option(zoom, "zoom", 1.0, "1 shows the whole cloud", in(0.05, 1000));
  double shift_x = option(shift_x, "shift-x", 0.0, "to the right, in parts of the shorter side");
  double shift_y = option(shift_y, "shift-y", 0.0, "upwards, in parts of the shorter side");
  bool operator==(const Orbit&) const = default;

  /// A drag over so many pixels: half a turn per `pixels_per_half_turn`.
  void rotate(double dx, double dy, double pixels_per_half_turn);
  /// Makes everything `factor` times larger around (x, y), given from the middle of the view in
  /// parts of its shorter side, y upwards.
  void zoom_at(double x, double y, double factor);
  void shift(double dx, double dy) { shift_x += dx, shift_y += dy; }
  void reset() { *this = Orbit(); }

  /// The unit vectors of the view in data coordinates: right, up, towards the viewer.
  std::array<std::array<double, 3>, 3> axes() const;
  /// All axes have one scale; at zoom 1 every point fits into width x height pixels, however
  /// turned.
  Camera camera(const CloudBox& box, double width, double height) const;
};

}  // namespace kvscope::gui
