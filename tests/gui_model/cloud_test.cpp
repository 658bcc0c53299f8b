// Clouds, the point under the mouse, and the orbit: against loops over all points.
#include "gui/model/geometry/cloud.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "gui/model/geometry/orbit.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::gui::test::cloud_test {

using Catch::Approx;
using kvscope::test::Random;

std::vector<CloudPoint> random_points(std::size_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<CloudPoint> points(n);
  for (auto& p : points) {
    p = {static_cast<float>(3.0 * random.normal()), static_cast<float>(random.normal()),
         static_cast<float>(0.5 * random.normal())};
  }
  return points;
}

/// 10 pixels per unit, the middle at (200, 150).
Camera flat_camera() {
  Camera camera{
      .right = {10.0, 0.0, 0.0}, .down = {0.0, -10.0, 0.0}, .offset = {200.0, 150.0, 0.0}};
  return camera;
}

TEST_CASE("cloud: sets follow each other; the box is that of the finite points") {
  Cloud cloud;
  cloud.add({{1, 2, 3}, {4, 5, 6}}, {{1, 1, 1}, {2, 2, 2}}, 1.0f, 0.5f);
  cloud.add({{-1, 0, 0}}, {{3, 3, 3}}, 2.0f, 1.0f);
  REQUIRE(cloud.sets.size() == 2);
  CHECK(cloud.sets[1].begin == 2);
  CHECK(cloud.sets[1].end == 3);
  CHECK(cloud.at.size() == cloud.colour.size());

  auto points = cloud.at;
  points.push_back({std::numeric_limits<float>::quiet_NaN(), 100.0f, 0.0f});
  const auto box = box_of(points);
  REQUIRE(box);
  CHECK(box->low == CloudPoint{-1, 0, 0});
  CHECK(box->high == CloudPoint{4, 5, 6});
  CHECK(box->radius == Approx(std::sqrt(2.5 * 2.5 + 2.5 * 2.5 + 9.0)));
  CHECK_FALSE(box_of({}));
}

TEST_CASE("cloud: the nearest point is the one that a loop finds") {
  const auto points = random_points(3000, 7);
  const Camera camera = flat_camera();
  const PointIndex index(points, camera, 400.0f, 300.0f);
  Random random(8);
  int n_found = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const auto x = static_cast<float>(400.0 * random.uniform());
    const auto y = static_cast<float>(300.0 * random.uniform());
    const float radius = 9.0f;
    std::optional<std::size_t> best;
    float best_distance = radius * radius;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const auto at = camera.project(points[i]);
      if (!(at[0] >= 0 && at[0] < 400 && at[1] >= 0 && at[1] < 300)) continue;
      const float d = (at[0] - x) * (at[0] - x) + (at[1] - y) * (at[1] - y);
      if (d <= best_distance) {
        best = i;  // the later one among equals
        best_distance = d;
      }
    }
    CHECK(index.nearest(x, y, radius) == best);
    n_found += best ? 1 : 0;
  }
  CHECK(n_found > 30);
  CHECK(n_found < 400);
}

TEST_CASE("cloud: of points on one pixel the one in front is found; none outside or without room") {
  const std::vector<CloudPoint> points = {{0, 0, 5}, {0, 0, -5}, {0, 0, 0}};
  Camera camera = flat_camera();
  camera.toward = {0.0, 0.0, 0.1};
  camera.offset[2] = 0.5;
  CHECK(PointIndex(points, camera, 400, 300).nearest(201, 150, 4) == std::size_t{0});
  CHECK(PointIndex(points, flat_camera(), 400, 300).nearest(201, 150, 4) == std::size_t{2});
  CHECK_FALSE(PointIndex(points, camera, 100, 100).nearest(99, 99, 4));
  CHECK_FALSE(PointIndex(points, camera, 0, 0).nearest(0, 0, 4));
  CHECK_FALSE(PointIndex({}, camera, 400, 300).nearest(200, 150, 400));
}

TEST_CASE("orbit: the view's axes are orthonormal; without a turn it is the flat view") {
  Orbit orbit;
  for (const double yaw : {0.0, 33.0, -170.0}) {
    for (const double pitch : {-90.0, 0.0, 41.0}) {
      orbit.yaw = yaw;
      orbit.pitch = pitch;
      const auto axes = orbit.axes();
      for (std::size_t i = 0; i < 3; ++i) {
        for (std::size_t j = 0; j < 3; ++j) {
          double dot = 0.0;
          for (std::size_t c = 0; c < 3; ++c) dot += axes[i][c] * axes[j][c];
          CHECK(dot == Approx(i == j ? 1.0 : 0.0).margin(1e-12));
        }
      }
    }
  }
  orbit.yaw = orbit.pitch = 0.0;
  const CloudBox box{{-1, -1, -1}, {1, 1, 1}, 2.0};
  const Camera camera = orbit.camera(box, 300, 200);
  const auto middle = camera.project({0, 0, 0});
  CHECK(middle[0] == Approx(150.0));
  CHECK(middle[1] == Approx(100.0));
  CHECK(middle[2] == Approx(0.5));
  const auto corner = camera.project({1, 1, 1});
  CHECK(corner[0] > middle[0]);  // to the right
  CHECK(corner[1] < middle[1]);  // and up
  CHECK(corner[2] > middle[2]);  // and in front
}

TEST_CASE("orbit: however turned, every point is inside and depths lie between back and front") {
  const auto points = random_points(500, 3);
  const auto box = box_of(points);
  REQUIRE(box);
  Orbit orbit;
  for (int turn = 0; turn < 12; ++turn) {
    orbit.rotate(47.0, turn % 2 == 0 ? 31.0 : -28.0, 400.0);
    const Camera camera = orbit.camera(*box, 640, 400);
    for (const CloudPoint& p : points) {
      const auto at = camera.project(p);
      CHECK((at[0] >= 0 && at[0] <= 640 && at[1] >= 0 && at[1] <= 400));
      CHECK((at[2] >= 0 && at[2] <= 1));
    }
  }
}

TEST_CASE("orbit: drags turn the front with the hand, the wheel keeps what is under it, resets") {
  const CloudBox box{{-1, -1, -1}, {1, 1, 1}, 2.0};
  Orbit orbit;
  orbit.yaw = orbit.pitch = 0.0;
  const CloudPoint front{0, 0, 1};
  const auto before = orbit.camera(box, 400, 400).project(front);
  orbit.rotate(20.0, 10.0, 400.0);
  const auto after = orbit.camera(box, 400, 400).project(front);
  CHECK(after[0] > before[0]);
  CHECK(after[1] > before[1]);
  orbit.rotate(0.0, 1e6, 400.0);
  CHECK(orbit.pitch == 90.0);

  orbit.reset();
  CHECK(orbit == Orbit());
  const CloudPoint p{0.4f, -0.3f, 0.2f};
  const auto at = orbit.camera(box, 500, 400).project(p);
  const double x = (static_cast<double>(at[0]) - 250.0) / 400.0;
  const double y = -(static_cast<double>(at[1]) - 200.0) / 400.0;
  orbit.zoom_at(x, y, 3.0);
  const auto zoomed = orbit.camera(box, 500, 400).project(p);
  CHECK(zoomed[0] == Approx(at[0]).margin(1e-3));
  CHECK(zoomed[1] == Approx(at[1]).margin(1e-3));
  CHECK(orbit.zoom == Approx(3.0));
  orbit.zoom_at(0.0, 0.0, 1e9);
  CHECK(orbit.zoom == Approx(1000.0));
}

TEST_CASE("orbit: a cloud of one place can be looked at") {
  const auto box = box_of({{2, 3, 4}, {2, 3, 4}});
  REQUIRE(box);
  const auto at = Orbit().camera(*box, 100, 80).project({2, 3, 4});
  CHECK(at[0] == Approx(50.0));
  CHECK(at[1] == Approx(40.0));
}

}  // namespace kvscope::gui::test::cloud_test
