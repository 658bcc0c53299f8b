// An animated PNG holds its frames' own pixels, in their order.
#include "notebooks_export/animated_png.hpp"

#include <cstdint>
#include <utility>

#include "notebooks_export/cairo_canvas.hpp"
#include "tests/support/test.hpp"

namespace kvscope::animated_png_test {

/// Three rows of one colour.
std::string picture(int width, std::uint8_t red, std::uint8_t blue) {
  plot::Image image{width, 3, {}};
  for (int i = 0; i < 3 * width; ++i)
    image.rgba.insert(image.rgba.end(), {red, std::uint8_t{0}, blue, std::uint8_t{255}});
  return encode_png(image);
}

/// Names and data of a file's chunks.
std::vector<std::pair<std::string, std::string>> chunks_of(const std::string& file) {
  std::vector<std::pair<std::string, std::string>> chunks;
  for (std::size_t at = 8; at + 12 <= file.size();) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < 4; ++i) n = n << 8 | static_cast<unsigned char>(file[at + i]);
    chunks.emplace_back(file.substr(at + 4, 4), file.substr(at + 8, n));
    at += n + 12;
  }
  return chunks;
}

std::string pixels_of(const std::string& file) {
  for (const auto& [name, data] : chunks_of(file))
    if (name == "IDAT") return data;
  return "";
}

TEST_CASE("an animated PNG holds its frames' own pixels, each for its time") {
  const std::string red = picture(4, 255, 0);
  const std::string blue = picture(4, 0, 255);
  const std::vector<std::string_view> frames = {red, blue, red};
  const std::string film = animated_png(frames, 250);
  CHECK(film.substr(0, 8) == red.substr(0, 8));
  const auto chunks = chunks_of(film);
  std::vector<std::string> names;
  for (const auto& [name, data] : chunks) names.push_back(name);
  CHECK(names == std::vector<std::string>{"IHDR", "acTL", "fcTL", "IDAT", "fcTL", "fdAT", "fcTL",
                                          "fdAT", "IEND"});
  CHECK(chunks[0].second == chunks_of(red)[0].second);
  CHECK(chunks[1].second == std::string({0, 0, 0, 3, 0, 0, 0, 0}));
  CHECK(chunks[3].second == pixels_of(red));
  CHECK(chunks[5].second == std::string({0, 0, 0, 2}) + pixels_of(blue));
  CHECK(chunks[7].second == std::string({0, 0, 0, 4}) + pixels_of(red));
  CHECK(chunks[4].second.substr(0, 4) == std::string({0, 0, 0, 1}));
  CHECK(chunks[4].second.substr(20, 4) == std::string({0, '\xfa', '\x03', '\xe8'}));
  CHECK(film.substr(film.size() - 4) == "\xae\x42\x60\x82");  // of an empty IEND, as in any PNG
  CHECK(film.find(red.substr(8, 25)) == 8);                   // IHDR with its sum
}

TEST_CASE("frames that are no pictures, or other ones, are refused") {
  const std::string red = picture(4, 255, 0);
  const std::string wide = picture(5, 255, 0);
  const std::string cut = red.substr(0, 40);
  const auto made = [](std::vector<std::string_view> frames, int milliseconds = 100) {
    return animated_png(frames, milliseconds);
  };
  CHECK_THROWS_AS(made({}), FormatError);
  CHECK_SAYS(made({red, wide}), "another size");
  CHECK_SAYS(made({cut}), "ends too early");
  CHECK_SAYS(made({"GIF89a"}), "does not begin like one");
  CHECK_THROWS_AS(made({red}, 70000), ConfigError);
}

}  // namespace kvscope::animated_png_test
