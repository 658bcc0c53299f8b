// A cloud of points on screen: painted into a texture when something changed, shown from there in
// all other frames, asked for the point under the mouse.
#pragma once

#include <imgui.h>

#include <cstdint>
#include <optional>

#include "analysis/plot/canvas.hpp"
#include "gui/model/geometry/cloud.hpp"
#include "gui/render/textures.hpp"

namespace kvscope::gui {

struct PointStyle {
  plot::Colour ground;     // opaque, behind the points
  float radius = 2.0f;     // pixels, of a set of size 1
  std::size_t stride = 1;  // every so many points of a set are painted: for pictures in motion
  bool operator==(const PointStyle&) const = default;
};

/// A radius at which so many points neither vanish nor cover each other: 1 pixel for 200 000 points
/// on a usual screen, 2.6 for a thousand. `scale`: pixels per point of the interface.
float point_radius(std::size_t n_points, float scale);

/// Fills the picture (its size stays) with the ground and a disc for every point: by sets under a
/// flat camera, else what is in front last. Points beyond the picture and NaN are left out. On the
/// CPU: a software renderer needs 100 ms for 200 000 points, a texture a few.
void paint_points(const Cloud& cloud, const Camera& camera, const PointStyle& style,
                  plot::Image& image);

class PointCloud {
 public:
  /// The store must outlive the cloud.
  explicit PointCloud(TextureStore& textures) : textures_(textures) {}

  /// Shows the cloud in a rectangle of the screen, as the camera sees it from the rectangle's top
  /// left corner. `version` names the content: another number means another cloud. Of clouds with
  /// more than kMostInMotion points, some are left out as long as the camera moves.
  void show(ImDrawList& list, ImVec2 low, ImVec2 high, const Cloud& cloud, std::uint64_t version,
            const Camera& camera, const PointStyle& style);

  static constexpr std::size_t kMostInMotion = 60'000;
  /// The last picture left points out: another frame, without motion, shows all of them.
  bool is_rough() const { return rough_; }

  /// The point of the cloud shown last that is nearest to a place on screen, within `radius`
  /// pixels; none while the picture is rough. The first question after a change sorts the points
  /// (some milliseconds for 200 000).
  std::optional<std::size_t> nearest(const Cloud& cloud, ImVec2 at, float radius);

  /// Where the camera of the last show() puts a place of the data on screen.
  ImVec2 place(const CloudPoint& point) const;

  /// How often the texture was painted, for tests and measurements.
  std::uint64_t n_paintings() const { return n_paintings_; }

 private:
  struct Shown {
    std::uint64_t version = 0;
    Camera camera;
    PointStyle style;
    int width = 0;
    int height = 0;
    bool operator==(const Shown&) const = default;
  };
  TextureStore& textures_;
  plot::Image image_;
  Texture texture_;
  std::optional<Shown> shown_;
  bool rough_ = false;
  std::optional<PointIndex> index_;  // of shown_, once asked for
  ImVec2 low_{0.0f, 0.0f};
  std::uint64_t n_paintings_ = 0;
};

}  // namespace kvscope::gui
