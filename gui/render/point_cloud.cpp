#include "gui/render/point_cloud.hpp"

#include <algorithm>
#include <cmath>

namespace kvscope::gui {

void PointCloud::show(ImDrawList& list, ImVec2 low, ImVec2 high, const Cloud& cloud,
                      std::uint64_t version, const Camera& camera, const SplatStyle& style) {
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
    SplatStyle painted = style;
    if (rough_) painted.stride = cloud.at.size() / kMostInMotion + 1;
    painter_.paint(cloud, camera, painted, image_);
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
