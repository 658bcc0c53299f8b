// Points painted into a picture, and the texture that keeps it.
#include "gui/render/point_cloud.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "gui/platform/headless.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::gui::test::point_cloud_test {

const plot::Colour kWhite{255, 255, 255};
const plot::Colour kRed{255, 0, 0};

plot::Image blank(int width, int height) {
  return {width, height, std::vector<std::uint8_t>(static_cast<std::size_t>(4 * width * height))};
}

plot::Colour pixel(const plot::Image& image, int x, int y) {
  const std::uint8_t* p = image.rgba.data() + 4 * (y * image.width + x);
  CHECK(p[3] == 255);
  return {p[0], p[1], p[2]};
}

/// One pixel per unit.
Camera plain_camera() {
  return Camera{.right = {1.0, 0.0, 0.0}, .down = {0.0, 1.0, 0.0}};
}

plot::Image painted(const Cloud& cloud, const Camera& camera, float radius = 2.0f) {
  plot::Image image = blank(40, 30);
  paint_points(cloud, camera, {kWhite, radius}, image);
  return image;
}

TEST_CASE("points: those beyond the edges and without a place do no harm", "[points]") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Cloud cloud;
  const std::vector<CloudPoint> points = {{0, 0, 0},      {39.9f, 29.9f, 0}, {-1.0f, 10, 0},
                                          {kNan, 10, 0},  {10, kInf, 0},     {1e30f, -1e30f, 0},
                                          {-65.0f, 5, 0}, {41.0f, 31.0f, 0}};
  cloud.add(points, std::vector<plot::Colour>(points.size(), kRed), 1.0f, 1.0f);
  const plot::Image image = painted(cloud, plain_camera());
  CHECK(pixel(image, 0, 0) == kRed);
  CHECK(pixel(image, 39, 29) == kRed);
  CHECK(pixel(image, 0, 10) != kWhite);  // its edge reaches in
  CHECK(pixel(image, 20, 15) == kWhite);
  CHECK(painted(Cloud(), plain_camera()).rgba == std::vector<std::uint8_t>(4 * 40 * 30, 255));
}

TEST_CASE("point cloud: painted only when something changed; finds the point under the mouse",
          "[points]") {
  kvscope::test::Random random(4);
  Cloud cloud;
  std::vector<CloudPoint> points(500);
  for (auto& p : points) {
    p = {static_cast<float>(300.0 * random.uniform()), static_cast<float>(200.0 * random.uniform()),
         0.0f};
  }
  cloud.add(points, std::vector<plot::Colour>(points.size(), kRed), 1.0f, 1.0f);
  NullBackend backend({640, 480});
  PointCloud view(backend.texture_store());
  const PointStyle style{kWhite, 2.0f};
  std::uint64_t version = 1;
  Camera camera = plain_camera();
  const auto frame = [&] {
    backend.frame([&] {
      ImGui::Begin("w");
      view.show(*ImGui::GetWindowDrawList(), {20, 30}, {320, 230}, cloud, version, camera, style);
      ImGui::End();
    });
  };
  CHECK_FALSE(view.nearest(cloud, {100, 100}, 5));
  for (int i = 0; i < 3; ++i) frame();
  CHECK(view.n_paintings() == 1);
  for (const std::size_t i : {std::size_t{0}, std::size_t{77}, std::size_t{499}}) {
    const ImVec2 at = view.place(points[i]);
    const auto found = view.nearest(cloud, at, 5);
    REQUIRE(found);
    CHECK(view.place(points[*found]).x == at.x);
    CHECK(view.place(points[*found]).y == at.y);
  }
  camera.offset[0] = 15.0;
  frame();
  CHECK(view.n_paintings() == 2);
  CHECK(view.place({0, 0, 0}).x == 35.0f);
  ++version;
  frame();
  frame();
  CHECK(view.n_paintings() == 3);
}

TEST_CASE("point cloud: a large one is rough while the camera moves, and whole after it",
          "[points]") {
  Cloud cloud;
  const std::vector<CloudPoint> points(PointCloud::kMostInMotion + 1, CloudPoint{10, 10, 0});
  cloud.add(points, std::vector<plot::Colour>(points.size(), kRed), 1.0f, 1.0f);
  NullBackend backend({320, 240});
  PointCloud view(backend.texture_store());
  Camera camera = plain_camera();
  const auto frame = [&] {
    backend.frame([&] {
      ImGui::Begin("w");
      view.show(*ImGui::GetWindowDrawList(), {0, 0}, {100, 100}, cloud, 1, camera, {kWhite, 1.0f});
      ImGui::End();
    });
  };
  frame();
  CHECK_FALSE(view.is_rough());  // the first picture is whole
  camera.offset[0] = 3.0;
  frame();
  CHECK(view.is_rough());
  CHECK_FALSE(view.nearest(cloud, {13, 10}, 5));
  frame();
  CHECK_FALSE(view.is_rough());
  CHECK(view.nearest(cloud, {13, 10}, 5));
  CHECK(view.n_paintings() == 3);
  frame();
  CHECK(view.n_paintings() == 3);
}

}  // namespace kvscope::gui::test::point_cloud_test
