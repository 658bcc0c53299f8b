#include "gui/model/geometry/cloud.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvscope::gui {

namespace {

bool is_finite(const CloudPoint& p) {
  return std::isfinite(p[0]) && std::isfinite(p[1]) && std::isfinite(p[2]);
}

}  // namespace

CloudPoint CloudBox::middle() const {
  CloudPoint m{};
  for (std::size_t c = 0; c < 3; ++c) m[c] = low[c] + 0.5f * (high[c] - low[c]);
  return m;
}

std::optional<CloudBox> box_of(const std::vector<CloudPoint>& points) {
  std::optional<CloudBox> box;
  for (const CloudPoint& p : points) {
    if (!is_finite(p)) continue;
    if (!box) box = CloudBox{p, p};
    for (std::size_t c = 0; c < 3; ++c) {
      box->low[c] = std::min(box->low[c], p[c]);
      box->high[c] = std::max(box->high[c], p[c]);
    }
  }
  if (!box) return box;
  const CloudPoint middle = box->middle();
  double farthest = 0.0;  // squared
  for (const CloudPoint& p : points) {
    if (!is_finite(p)) continue;
    double distance = 0.0;
    for (std::size_t c = 0; c < 3; ++c) {
      const double d = static_cast<double>(p[c]) - static_cast<double>(middle[c]);
      distance += d * d;
    }
    farthest = std::max(farthest, distance);
  }
  box->radius = std::sqrt(farthest);
  return box;
}

std::array<float, 3> Camera::project(const CloudPoint& p) const {
  const auto along = [&](const std::array<double, 3>& axis, double from) {
    return static_cast<float>(from + axis[0] * static_cast<double>(p[0]) +
                              axis[1] * static_cast<double>(p[1]) +
                              axis[2] * static_cast<double>(p[2]));
  };
  return {along(right, offset[0]), along(down, offset[1]),
          is_flat() ? 1.0f : along(toward, offset[2])};
}

// ---- orbit ----

namespace {
constexpr double kNearest = 1000.0;
constexpr double kFarthest = 0.05;
constexpr double kFill = 0.96;  // of the shorter side, at zoom 1
}  // namespace

void Orbit::rotate(double dx, double dy, double pixels_per_half_turn) {
  const double degrees = 180.0 / std::max(1.0, pixels_per_half_turn);
  yaw = std::remainder(yaw + dx * degrees, 360.0);
  pitch = std::clamp(pitch + dy * degrees, -90.0, 90.0);
}

void Orbit::zoom_at(double x, double y, double factor) {
  const double before = zoom;
  zoom = std::clamp(zoom * factor, kFarthest, kNearest);
  const double real = zoom / before;
  shift_x = x + (shift_x - x) * real;
  shift_y = y + (shift_y - y) * real;
}

std::array<std::array<double, 3>, 3> Orbit::axes() const {
  const double a = yaw * std::numbers::pi / 180.0;
  const double b = pitch * std::numbers::pi / 180.0;
  // The cloud turns by `yaw` around its second axis, then tips towards the viewer by `pitch`.
  return {{{std::cos(a), 0.0, std::sin(a)},
           {std::sin(b) * std::sin(a), std::cos(b), -std::sin(b) * std::cos(a)},
           {-std::cos(b) * std::sin(a), std::sin(b), std::cos(b) * std::cos(a)}}};
}

Camera Orbit::camera(const CloudBox& box, double width, double height) const {
  const double radius = box.radius > 0.0 ? box.radius : 1.0;
  const CloudPoint centre = box.middle();
  const double side = std::min(width, height);
  const double scale = kFill * 0.5 * side / radius * zoom;
  const auto [right, up, toward] = axes();
  Camera camera;
  camera.offset = {0.5 * width + shift_x * side, 0.5 * height - shift_y * side, 0.5};
  for (std::size_t c = 0; c < 3; ++c) {
    camera.right[c] = scale * right[c];
    camera.down[c] = -scale * up[c];
    camera.toward[c] = 0.5 / radius * toward[c];
    camera.offset[0] -= camera.right[c] * static_cast<double>(centre[c]);
    camera.offset[1] -= camera.down[c] * static_cast<double>(centre[c]);
    camera.offset[2] -= camera.toward[c] * static_cast<double>(centre[c]);
  }
  return camera;
}

}  // namespace kvscope::gui
