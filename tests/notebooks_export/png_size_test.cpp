// A PNG has the pixels that its size in points and its resolution ask for, and the page fills them.
#include <tuple>

#include "notebooks_export/cairo_canvas.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::png_size_test {

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

}  // namespace kvscope::test::png_size_test
