#include "gui/model/geometry/cloud.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace kvscope::gui {

void Cloud::add(const std::vector<CloudPoint>& points, const std::vector<plot::Colour>& colours,
                float size, float opacity) {
  const std::size_t begin = at.size();
  at.insert(at.end(), points.begin(), points.end());
  colour.insert(colour.end(), colours.begin(), colours.end());
  sets.push_back({begin, at.size(), size, opacity});
}

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

PointIndex::PointIndex(const std::vector<CloudPoint>& points, const Camera& camera, float width,
                       float height)
    : columns_(static_cast<int>(std::ceil(std::max(width, 0.0f) / kCell))),
      rows_(static_cast<int>(std::ceil(std::max(height, 0.0f) / kCell))) {
  // A counting sort by cell: two passes, no list per cell.
  first_.assign(static_cast<std::size_t>(columns_) * static_cast<std::size_t>(rows_) + 1, 0);
  std::vector<std::array<float, 3>> pixels;
  std::vector<std::uint32_t> inside;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto at = camera.project(points[i]);
    if (!(at[0] >= 0.0f && at[0] < width && at[1] >= 0.0f && at[1] < height)) continue;
    inside.push_back(static_cast<std::uint32_t>(i));
    pixels.push_back(at);
    ++first_[cell_of(at[0], at[1]) + 1];
  }
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
  points_.resize(inside.size());
  pixels_.resize(inside.size());
  for (std::size_t i = 0; i < inside.size(); ++i) {
    const std::uint32_t to = next[cell_of(pixels[i][0], pixels[i][1])]++;
    points_[to] = inside[i];
    pixels_[to] = pixels[i];
  }
}

std::size_t PointIndex::cell_of(float x, float y) const {
  const auto cell = [](float v, int n) {
    return std::clamp(static_cast<int>(v / kCell), 0, n - 1);
  };
  return static_cast<std::size_t>(cell(y, rows_)) * static_cast<std::size_t>(columns_) +
         static_cast<std::size_t>(cell(x, columns_));
}

std::optional<std::size_t> PointIndex::nearest(float x, float y, float radius) const {
  if (columns_ == 0 || rows_ == 0) return std::nullopt;
  const auto cells = [&](float low, float high, int n) {
    const auto cell = [&](float v) {
      return std::clamp(static_cast<int>(std::floor(v / kCell)), 0, n - 1);
    };
    return std::pair(cell(low), cell(high));
  };
  const auto [left, right] = cells(x - radius, x + radius, columns_);
  const auto [top, bottom] = cells(y - radius, y + radius, rows_);
  std::optional<std::uint32_t> best;  // index into points_
  float best_distance = radius * radius;
  for (int row = top; row <= bottom; ++row) {
    for (int column = left; column <= right; ++column) {
      const auto cell = static_cast<std::size_t>(row) * static_cast<std::size_t>(columns_) +
                        static_cast<std::size_t>(column);
      for (std::uint32_t i = first_[cell]; i < first_[cell + 1]; ++i) {
        const float dx = pixels_[i][0] - x;
        const float dy = pixels_[i][1] - y;
        const float distance = dx * dx + dy * dy;
        if (distance > best_distance) continue;
        const bool is_better = !best || distance < best_distance ||
                               pixels_[i][2] > pixels_[*best][2] ||
                               (pixels_[i][2] == pixels_[*best][2] && points_[i] > points_[*best]);
        if (!is_better) continue;
        best = i;
        best_distance = distance;
      }
    }
  }
  if (!best) return std::nullopt;
  return points_[*best];
}

}  // namespace kvscope::gui
