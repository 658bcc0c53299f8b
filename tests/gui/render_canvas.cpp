// The drawing interface on an ImDrawList: what is drawn where, and what costs nothing.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cfloat>
#include <limits>

#include "gui/platform/headless.hpp"
#include "gui/render/imgui_canvas.hpp"

namespace kvscope::gui::render_canvas_test {
namespace {

using plot::Point;

struct Extent {
  ImVec2 low{FLT_MAX, FLT_MAX};
  ImVec2 high{-FLT_MAX, -FLT_MAX};
  int n = 0;
};

/// What `draw` adds to the frame's background, as vertices.
template <class Draw>
Extent extent_of(NullBackend& backend, double scale, Draw draw) {
  DrawnImages images(backend.texture_store());
  Extent extent;
  // twice: sizes and characters that were missing are there in the second frame
  for (int i = 0; i < 2; ++i) {
    backend.frame([&] {
      ImDrawList& list = *ImGui::GetBackgroundDrawList();
      const int first = list.VtxBuffer.Size;
      ImGuiCanvas canvas(list, backend.fonts(), images, {0.0F, 0.0F}, scale);
      draw(canvas);
      extent = {};
      for (int v = first; v < list.VtxBuffer.Size; ++v, ++extent.n) {
        const ImVec2 p = list.VtxBuffer[v].pos;
        extent.low = {std::min(extent.low.x, p.x), std::min(extent.low.y, p.y)};
        extent.high = {std::max(extent.high.x, p.x), std::max(extent.high.y, p.y)};
      }
    });
  }
  return extent;
}

TEST_CASE("rectangles and pictures draw where they should, bad numbers nowhere",
          "[render][canvas]") {
  NullBackend backend;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto rect = extent_of(backend, 2.0, [](auto& canvas) {
    canvas.fill_rect({10.0, 20.0, 30.0, 40.0}, {});
  });
  CHECK(rect.low.x == 20.0F);
  CHECK(rect.high.y == 120.0F);

  const plot::Image image{2, 1, {255, 0, 0, 255, 0, 255, 0, 255}};
  const auto picture = extent_of(backend, 1.0, [&](auto& canvas) {
    canvas.image({10.2, 10.2, 100.0, 50.0}, image);
  });
  CHECK(picture.n == 4);
  CHECK(picture.high.x == 110.0F);

  const auto nothing = extent_of(backend, 1.0, [&](auto& canvas) {
    const Point broken[] = {{nan, 1.0}, {2.0, nan}, {nan, nan}};
    canvas.polyline(broken, {});
    canvas.polygon(broken, {});
    canvas.markers(broken, plot::MarkerShape::circle, 2.0, {});
    canvas.fill_rect({nan, 0.0, 1.0, 1.0}, {});
    canvas.image({nan, 0.0, 1.0, 1.0}, image);
    canvas.image({0.0, 0.0, 1.0, 1.0}, {});
    canvas.text({nan, 0.0}, "x", {});
  });
  CHECK(nothing.n == 0);
}

TEST_CASE("what lies far outside costs nothing", "[render][canvas]") {
  NullBackend backend;
  const auto line = extent_of(backend, 1.0, [](auto& canvas) {
    const Point far[] = {{-1e12, -1e12}, {1e12, 1e12}};
    canvas.polyline(far, {{}, 1.0, plot::Dash::dotted});
  });
  CHECK(line.n > 0);
  CHECK(line.n < 20000);
  CHECK(line.low.x > -20.0F);
  const auto band = extent_of(backend, 1.0, [](auto& canvas) {
    const Point far[] = {{-1e12, 0.0}, {1e12, 0.0}, {1e12, 1e12}, {-1e12, 1e12}};
    canvas.polygon(far, {});
  });
  CHECK(band.high.x < 2000.0F);
}

}  // namespace
}  // namespace kvscope::gui::render_canvas_test
