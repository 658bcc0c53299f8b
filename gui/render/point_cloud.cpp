#include "gui/render/point_cloud.hpp"

#include <algorithm>
#include <cmath>

namespace kvscope::gui {

namespace {

void paint_disc(plot::Image& image, float x, float y, float radius, plot::Colour colour,
                float opacity) {
  const int left = std::max(0, static_cast<int>(std::ceil(x - radius - 0.5f)));
  const int right = std::min(image.width - 1, static_cast<int>(std::floor(x + radius - 0.5f)));
  const int top = std::max(0, static_cast<int>(std::ceil(y - radius - 0.5f)));
  const int bottom = std::min(image.height - 1, static_cast<int>(std::floor(y + radius - 0.5f)));
  const int above = static_cast<int>(std::lround(256.0f * opacity));
  const auto mix = [above](std::uint8_t& below, std::uint8_t part) {
    below = static_cast<std::uint8_t>((below * (256 - above) + part * above) >> 8);
  };
  for (int row = top; row <= bottom; ++row) {
    for (int col = left; col <= right; ++col) {
      const float dx = static_cast<float>(col) + 0.5f - x;
      const float dy = static_cast<float>(row) + 0.5f - y;
      if (dx * dx + dy * dy > radius * radius) continue;
      std::uint8_t* pixel =
          image.rgba.data() + 4 * (static_cast<std::ptrdiff_t>(row) * image.width + col);
      mix(pixel[0], colour.r);
      mix(pixel[1], colour.g);
      mix(pixel[2], colour.b);
    }
  }
}

}  // namespace

float point_radius(std::size_t n_points, float scale) {
  const double n = std::max<double>(1000.0, static_cast<double>(n_points));
  return static_cast<float>(std::max(0.9, 2.6 * std::pow(1000.0 / n, 0.18))) * scale;
}

void paint_points(const Cloud& cloud, const Camera& camera, const PointStyle& style,
                  plot::Image& image) {
  for (std::size_t i = 0; i < image.rgba.size(); i += 4) {
    image.rgba[i] = style.ground.r;
    image.rgba[i + 1] = style.ground.g;
    image.rgba[i + 2] = style.ground.b;
    image.rgba[i + 3] = 255;
  }
  struct Placed {
    float x, y, depth;
    std::size_t point;
    const CloudSet* set;
  };
  std::vector<Placed> placed;
  for (const CloudSet& set : cloud.sets) {
    const float reach = style.radius * set.size;
    for (std::size_t i = set.begin; i < set.end; i += std::max<std::size_t>(1, style.stride)) {
      const auto [x, y, depth] = camera.project(cloud.at[i]);
      const bool is_inside = x > -reach && x < static_cast<float>(image.width) + reach &&
                             y > -reach && y < static_cast<float>(image.height) + reach;
      if (is_inside) placed.push_back({x, y, depth, i, &set});
    }
  }
  if (!camera.is_flat()) std::ranges::stable_sort(placed, {}, &Placed::depth);
  for (const Placed& one : placed)
    paint_disc(image, one.x, one.y, std::max(0.6f, style.radius * one.set->size),
               cloud.colour[one.point], one.set->opacity);
}

void PointCloud::show(ImDrawList& list, ImVec2 low, ImVec2 high, const Cloud& cloud,
                      std::uint64_t version, const Camera& camera, const PointStyle& style) {
  low_ = low;
  Shown now{
      .version = version,
      .camera = camera,
      .style = style,
      .width = std::clamp(static_cast<int>(std::lround(high.x - low.x)), 1, textures_.max_side()),
      .height = std::clamp(static_cast<int>(std::lround(high.y - low.y)), 1, textures_.max_side())};
  if (shown_ != now || rough_) {
    // Only the camera is another one: something is dragged, turned or zoomed.
    Shown before = now;
    if (shown_) before.camera = shown_->camera;
    rough_ = cloud.at.size() > kMostInMotion && shown_ && shown_ != now && *shown_ == before;
    if (image_.width != now.width || image_.height != now.height) {
      image_.width = now.width;
      image_.height = now.height;
      image_.rgba.resize(4 * static_cast<std::size_t>(now.width) *
                         static_cast<std::size_t>(now.height));
      texture_ = Texture(textures_, now.width, now.height, Filter::nearest);
    }
    PointStyle painted = style;
    if (rough_) painted.stride = cloud.at.size() / kMostInMotion + 1;
    paint_points(cloud, camera, painted, image_);
    texture_.update(0, 0, now.width, now.height, image_.rgba);
    shown_ = now;
    index_.reset();
    ++n_paintings_;
  }
  list.AddImage(texture_.id(), low,
                {low.x + static_cast<float>(now.width), low.y + static_cast<float>(now.height)});
}

std::optional<std::size_t> PointCloud::nearest(const Cloud& cloud, ImVec2 at, float radius) {
  if (!shown_ || rough_) return std::nullopt;
  if (!index_) {
    index_.emplace(cloud.at, shown_->camera, static_cast<float>(shown_->width),
                   static_cast<float>(shown_->height));
  }
  return index_->nearest(at.x - low_.x, at.y - low_.y, radius);
}

ImVec2 PointCloud::place(const CloudPoint& point) const {
  if (!shown_) return low_;
  const auto at = shown_->camera.project(point);
  return {low_.x + at[0], low_.y + at[1]};
}

}  // namespace kvscope::gui
