// Draws many points into a picture on the CPU: a software renderer needs 100 ms for 200 000 points
// that a few milliseconds put into a texture.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/plot/canvas.hpp"
#include "gui/model/geometry/cloud.hpp"

namespace kvscope::gui {

struct SplatStyle {
  plot::Colour ground;     // opaque, behind the points
  float radius = 2.0f;     // pixels, of a set of size 1
  std::size_t stride = 1;  // every so many points of a set are painted: for pictures in motion
  bool operator==(const SplatStyle&) const = default;
};

/// A radius at which so many points neither vanish nor cover each other: 1 pixel for 200 000 points
/// on a usual screen, 2.6 for a thousand. `scale`: pixels per point of the interface.
float splat_radius(std::size_t n_points, float scale);

/// Draws clouds; keeps memory between pictures.
class SplatPainter {
 public:
  /// Fills the picture (its size stays) with the ground and the points. Under a flat camera the
  /// sets lie on top of each other in their order. Else far points come first, and are smaller and
  /// fainter: at the back 0.6 of the radius and 0.35 of the opacity. Points beyond the picture and
  /// NaN are left out.
  void paint(const Cloud& cloud, const Camera& camera, const SplatStyle& style, plot::Image& image);

 private:
  struct Splat {
    float x;
    float y;
    std::uint32_t point;
    std::uint16_t look;  // set and level of depth
  };
  /// A disc whose centre lies at one of kPhases^2 places inside a pixel: the pixels that it
  /// touches.
  struct Mask {
    int left = 0;  // from the centre's pixel
    int top = 0;
    int width = 0;
    int height = 0;
    std::vector<std::uint16_t> weight;  // [height, width], 0 to 256, the opacity included
  };
  static Mask make_mask(float radius, float opacity, float centre_x, float centre_y);
  void collect(const Cloud& cloud, const Camera& camera, std::size_t stride,
               const plot::Image& image);
  void sort_by_depth();
  void make_masks(const Cloud& cloud, const SplatStyle& style, bool has_depth);
  void stamp(const Splat& splat, std::uint32_t colour, plot::Image& image) const;

  std::vector<Splat> splats_;
  std::vector<Splat> sorted_;
  std::vector<Mask> masks_;  // [looks, kPhases, kPhases]
};

}  // namespace kvscope::gui
