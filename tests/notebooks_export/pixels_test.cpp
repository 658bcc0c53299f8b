// A PNG has the pixels that its size in points and its resolution ask for, and the page fills them;
// a window's pixels are crisp; what lies far outside is drawn right, and costs nothing.
#include <cstdlib>
#include <tuple>

#include "notebooks_export/cairo_canvas.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::pixels_test {

/// Big-endian, as PNG's header has width and height.
int word_at(const std::string& bytes, std::size_t at) {
  int word = 0;
  for (std::size_t i = 0; i < 4; ++i)
    word = word << 8 | static_cast<unsigned char>(bytes.at(at + i));
  return word;
}

std::string filled(plot::Size page, double dots_per_inch, plot::Size fill) {
  const auto canvas = make_png_canvas(page, dots_per_inch);
  canvas->fill_rect({0.0, 0.0, fill.w, fill.h}, plot::Colour{200, 30, 30});
  return canvas->finish();
}

TEST_CASE("a PNG has its resolution's dots to each inch of 72 points") {
  const plot::Size page{72.0, 36.0};
  for (const auto& [dots_per_inch, width, height] :
       {std::tuple{72.0, 72, 36}, std::tuple{96.0, 96, 48}, std::tuple{300.0, 300, 150}}) {
    INFO(dots_per_inch);
    const std::string png = filled(page, dots_per_inch, page);
    CHECK(word_at(png, 16) == width);
    CHECK(word_at(png, 20) == height);
    // A rectangle of the page's size covers it: a larger one gives the same picture, a smaller not.
    CHECK(png == filled(page, dots_per_inch, {2 * page.w, 2 * page.h}));
    CHECK(png != filled(page, dots_per_inch, {page.w - 2, page.h}));
  }
}

/// Red, green, blue, alpha of a screen's 100 x 50 pixels at half a point each.
std::vector<int> pixel(const std::string& rgba, std::size_t x, std::size_t y) {
  REQUIRE(rgba.size() == 4 * 100 * 50);
  std::vector<int> parts;
  for (std::size_t c = 0; c < 4; ++c)
    parts.push_back(static_cast<unsigned char>(rgba[4 * (y * 100 + x) + c]));
  return parts;
}

TEST_CASE("a window's pixels: straight colours, lines on whole pixels") {
  std::vector<ScreenPicture> beneath;
  const auto canvas = make_screen_canvas(100, 50, {10.0, 0.0}, 2.0, 1.0, beneath);
  const plot::Colour red{200, 30, 30};
  const plot::Point upright[] = {{5.3, 0.0}, {5.3, 25.0}};
  canvas->polyline(upright, {red, 0.5});
  canvas->fill_rect({20.0, 0.0, 10.0, 10.0}, plot::with_alpha(red, 0.5));
  const std::string rgba = canvas->finish();
  const std::vector<int> clear(4, 0);
  CHECK(pixel(rgba, 19, 25) == clear);
  CHECK(pixel(rgba, 20, 25) == std::vector<int>{200, 30, 30, 255});
  CHECK(pixel(rgba, 21, 25) == clear);
  const auto half = pixel(rgba, 60, 10);
  CHECK(std::abs(half[0] - 200) <= 1);
  CHECK(std::abs(half[3] - 128) <= 1);
}

TEST_CASE("large pictures that nothing is beneath are shown under the page, others painted") {
  std::vector<ScreenPicture> beneath;
  const auto canvas = make_screen_canvas(400, 300, {10.0, 0.0}, 2.0, 0.5, beneath);
  const plot::Image white{300, 280, std::vector<std::uint8_t>(4UL * 300 * 280, 255)};
  const auto add = [&] {
    canvas->push_clip({0.0, 0.0, 100.0, 100.0});
    canvas->image({5.0, 5.0, 150.0, 140.0}, white);
    canvas->pop_clip();
  };
  add();
  add();
  REQUIRE(beneath.size() == 2);
  CHECK(beneath[0].rect.x == 20.0);
  CHECK(beneath[0].rect.bottom() == 290.0);
  CHECK(beneath[0].clip.right() == 210.0);
  CHECK(beneath[0].image.rgba == white.rgba);
  canvas->fill_rect({20.0, 20.0, 1.0, 1.0}, {200, 30, 30});
  add();
  CHECK(beneath.size() == 2);
  const std::string rgba = canvas->finish();
  const auto at = [&](std::size_t x, std::size_t y) {
    return static_cast<unsigned char>(rgba[4 * (y * 400 + x) + 1]);
  };
  CHECK(at(30, 30) == 255);
  CHECK(at(209, 199) == 255);
  CHECK(at(210, 199) == 0);  // clipped
}

TEST_CASE("what lies far outside of the page is drawn where it belongs") {
  const plot::Colour red{200, 30, 30};
  std::vector<ScreenPicture> beneath;
  const auto canvas = make_screen_canvas(100, 50, {0.0, 0.0}, 2.0, 1.0, beneath);
  const plot::Point line[] = {{-1e12, -5e11}, {1e12, 5e11}};  // through the upper left corner
  canvas->polyline(line, {red, 2.0, plot::Dash::dashed});
  canvas->polyline(line, {red, 2.0});
  const plot::Point area[] = {{-1e12, 20.0}, {1e12, 20.0}, {1e12, 1e12}, {-1e12, 1e12}};
  canvas->polygon(area, red);
  canvas->markers(line, plot::MarkerShape::circle, 2.0, red);
  const plot::Point level[] = {{-6e6, 2.0}, {100.0, 2.0}};
  canvas->polyline(level, {red, 1.0});
  const double nan = std::nan("");
  const plot::Point gap[] = {{25.0, 17.0}, {35.0, 17.0}, {nan, 17.0}, {45.0, 17.0}, {50.0, 17.0}};
  canvas->polyline(gap, {red, 1.0});
  const std::string rgba = canvas->finish();
  CHECK(pixel(rgba, 60, 3)[3] == 255);
  CHECK(pixel(rgba, 60, 7)[3] == 0);
  CHECK(pixel(rgba, 60, 34)[3] == 255);
  CHECK(pixel(rgba, 80, 34)[3] == 0);
  CHECK(pixel(rgba, 60, 30)[3] == 255);
  CHECK(pixel(rgba, 60, 10)[3] == 0);
  CHECK(pixel(rgba, 10, 38)[3] == 0);
  CHECK(pixel(rgba, 10, 42)[3] == 255);
}

}  // namespace kvscope::test::pixels_test
