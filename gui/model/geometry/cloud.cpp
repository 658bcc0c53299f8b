#include "gui/model/geometry/cloud.hpp"

#include <algorithm>
#include <cmath>

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

}  // namespace kvscope::gui
