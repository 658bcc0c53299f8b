// Lines and areas as pieces: clipping, dashes, triangles.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numbers>

#include "gui/render/fill_geometry.hpp"
#include "gui/render/shrink_image.hpp"
#include "gui/render/stroke_geometry.hpp"

namespace kvscope::gui::render_geometry_test {
namespace {

using plot::Point;

double area_of(std::span<const Point> outline) {
  double twice = 0.0;
  for (std::size_t i = 0; i < outline.size(); ++i) {
    const Point a = outline[i];
    const Point b = outline[(i + 1) % outline.size()];
    twice += a.x * b.y - a.y * b.x;
  }
  return 0.5 * std::abs(twice);
}

double area_of(const Triangles& t) {
  double sum = 0.0;
  for (std::size_t i = 0; i + 2 < t.indices.size(); i += 3) {
    const Point corners[] = {t.points[t.indices[i]], t.points[t.indices[i + 1]],
                             t.points[t.indices[i + 2]]};
    sum += area_of(corners);
  }
  return sum;
}

TEST_CASE("triangles cover exactly the polygon", "[render][geometry]") {
  // a band with unequally many corners above and below, and vertical steps
  std::vector<Point> band;
  for (int i = 0; i <= 50; ++i) band.push_back({1.0 * i, 5.0 + std::sin(0.3 * i)});
  for (int i = 25; i >= 0; --i) {
    band.push_back({2.0 * i, 1.0 * (i % 2)});
    if (i > 0 && i % 5 == 0) band.push_back({2.0 * i, -1.0});
  }
  CHECK(area_of(triangulate(band)) == Catch::Approx(area_of(band)));

  std::vector<Point> star;
  for (int i = 0; i < 14; ++i) {
    const double angle = 2.0 * std::numbers::pi * i / 14;
    const double radius = i % 2 == 0 ? 3.0 : 1.0;
    star.push_back({radius * std::cos(angle), radius * std::sin(angle)});
  }
  CHECK(area_of(triangulate(star)) == Catch::Approx(area_of(star)));

  std::vector<Point> spiral;  // far from any band
  for (int i = 0; i <= 60; ++i) {
    const double angle = 0.2 * i;
    spiral.push_back({(2.0 + 0.1 * i) * std::cos(angle), (2.0 + 0.1 * i) * std::sin(angle)});
  }
  for (int i = 60; i >= 0; --i) {
    const double angle = 0.2 * i;
    spiral.push_back({(1.5 + 0.1 * i) * std::cos(angle), (1.5 + 0.1 * i) * std::sin(angle)});
  }
  CHECK(area_of(triangulate(spiral)) == Catch::Approx(area_of(spiral)));

  const Point line[] = {{0, 0}, {0, 1}};
  CHECK(triangulate(line).indices.empty());
  const Point upright[] = {{1, 0}, {1, 1}, {1, 2}};
  CHECK(area_of(triangulate(upright)) == 0.0);
}

TEST_CASE("a polygon is cut at the box", "[render][geometry]") {
  const Point square[] = {{-10, -10}, {10, -10}, {10, 10}, {-10, 10}};
  CHECK(area_of(clip_polygon(square, {0, 0, 5, 100})) == Catch::Approx(50.0));
  CHECK(clip_polygon(square, {20, 20, 5, 5}).empty());
}

TEST_CASE("a line is cut at the box and remembers how long it was", "[render][geometry]") {
  const Point zigzag[] = {{-5, 1}, {5, 1}, {5, 50}, {8, 50}, {8, 1}};
  const auto pieces = clip_line(zigzag, {0, 0, 10, 10});
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[0].points.front().x == Catch::Approx(0.0));
  CHECK(pieces[0].points.back().y == Catch::Approx(10.0));
  CHECK(pieces[0].distance.front() == Catch::Approx(5.0));
  CHECK(pieces[1].distance.front() == Catch::Approx(10.0 + 49.0 + 3.0 + 40.0));
}

TEST_CASE("dashes have the pattern's lengths, also around corners", "[render][geometry]") {
  const ClippedLine line{{{0, 0}, {10, 0}, {10, 10}}, {0, 10, 20}};
  const double pattern[] = {4.0, 2.0};
  const auto dashes = dash_line(line, pattern);
  REQUIRE(dashes.size() == 4);
  CHECK(dashes[1].front().x == Catch::Approx(6.0));
  CHECK(dashes[1].back().x == Catch::Approx(10.0));
  CHECK(dashes[2].front().y == Catch::Approx(2.0));
  CHECK(dashes[3].back().y == Catch::Approx(10.0));  // the end of the line cuts the last one
  // a line that begins in a gap
  const ClippedLine later{{{0, 0}, {10, 0}}, {5.0, 15.0}};
  CHECK(dash_line(later, pattern).front().front().x == Catch::Approx(1.0));
}

TEST_CASE("sharp turns separate pieces, others do not", "[render][geometry]") {
  CHECK(split_at_sharp_turns({{0, 0}, {1, 0}, {1, 1}, {2, 1}}).size() == 1);
  CHECK(split_at_sharp_turns({{0, 0}, {1, 5}, {2, 0}, {3, 5}}).size() == 3);
}

TEST_CASE("a shrunk picture is the mean of its pixels", "[render][geometry]") {
  const plot::Image image{
      3, 2, {0, 0, 0, 255, 100, 0, 0, 255, 8, 8, 8, 0, 0, 0, 0, 255, 100, 0, 0, 255, 8, 8, 8, 0}};
  const plot::Image one = shrink_image(image, 1, 1);
  CHECK(one.rgba == std::vector<std::uint8_t>{50, 0, 0, 170});
  const plot::Image same = shrink_image(image, 3, 2);
  CHECK(same.width == 3);
  CHECK(same.rgba[4] == 100);
}

}  // namespace
}  // namespace kvscope::gui::render_geometry_test
