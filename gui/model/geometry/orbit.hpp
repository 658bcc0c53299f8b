// Looking at a cloud of three axes from any side: an orthographic camera that goes around it.
#pragma once

#include "core/base/fields.hpp"
#include "gui/model/geometry/cloud.hpp"

namespace kvscope::gui {

/// The direction one looks from, and how near. At yaw = pitch = 0 the first axis points right, the
/// second one up and the third one towards the viewer: the flat view.
struct Orbit {
  double yaw = -35.0;   // degrees around the second axis
  double pitch = 20.0;  // degrees, in [-90, 90]: from above if positive
  double zoom = 1.0;
  double shift_x = 0.0;  // of the cloud's centre from the middle, in parts of the shorter side
  double shift_y = 0.0;
  bool operator==(const Orbit&) const = default;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"yaw", "degrees around the second axis"}.in(-360, 360), self.yaw);
    visit(Field{"pitch", "degrees from the plane of the first and third axis"}.in(-90, 90),
          self.pitch);
    visit(Field{"zoom", "1 shows the whole cloud"}.in(0.05, 1000), self.zoom);
    visit(Field{"shift-x", "to the right, in parts of the shorter side"}, self.shift_x);
    visit(Field{"shift-y", "upwards, in parts of the shorter side"}, self.shift_y);
  }

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
