#include "analysis/plot/raster.hpp"

#include <algorithm>
#include <cmath>

namespace kvscope::plot {

namespace {

void put(Image& image, std::size_t pixel, Colour colour) {
  image.rgba[4 * pixel] = colour.r;
  image.rgba[4 * pixel + 1] = colour.g;
  image.rgba[4 * pixel + 2] = colour.b;
  image.rgba[4 * pixel + 3] = nearest_byte(255.0 * colour.alpha);
}

/// Colours added up over each other, premultiplied.
struct Accumulator {
  double r = 0.0, g = 0.0, b = 0.0, alpha = 0.0;
  void lay_over(Colour colour, double alpha_of_top) {
    const double keep = 1.0 - alpha_of_top;
    r = r * keep + colour.r * alpha_of_top;
    g = g * keep + colour.g * alpha_of_top;
    b = b * keep + colour.b * alpha_of_top;
    alpha = alpha * keep + alpha_of_top;
  }
};

/// How much a disc covers of a pixel in one of its rows, seen from its middle.
struct DiscPixel {
  int dx;
  double cover;
};

/// A pixel with points on it.
struct Spot {
  int x;
  Colour colour;
  double alpha;
};

}  // namespace

Image heat_map_image(const HeatMap& map, const Scale& colours, ColourMap colour_map, Colour masked,
                     bool flip_x, bool flip_y) {
  Image image{static_cast<int>(map.n_cols), static_cast<int>(map.n_rows), {}};
  image.rgba.resize(map.values.size() * 4);
  for (Index row = 0; row < map.n_rows; ++row) {
    for (Index col = 0; col < map.n_cols; ++col) {
      const Index from_row = flip_y ? map.n_rows - 1 - row : row;
      const Index from_col = flip_x ? map.n_cols - 1 - col : col;
      const float value = map.values[static_cast<std::size_t>(from_row * map.n_cols + from_col)];
      // below a logarithmic scale's range (zeros) is its low end; only NaN is masked
      const double unit = colours.to_unit(static_cast<double>(value));
      const Colour colour = std::isnan(value) ? masked : colour_at(colour_map, unit);
      put(image, static_cast<std::size_t>(row * map.n_cols + col), colour);
    }
  }
  return image;
}

Image cloud_image(std::span<const Point> places, std::span<const Colour> colours, double radius,
                  const Rect& frame, double pixels_per_point) {
  Image image{std::max(1, static_cast<int>(std::ceil(frame.w * pixels_per_point))),
              std::max(1, static_cast<int>(std::ceil(frame.h * pixels_per_point))),
              {}};
  const auto n_pixels =
      static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height);
  image.rgba.assign(n_pixels * 4, 0);

  // 1. points per pixel; the colour of the last one speaks for a pixel
  std::vector<std::uint32_t> count(n_pixels, 0);
  std::vector<std::uint32_t> last(n_pixels, 0);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!std::isfinite(places[i].x + places[i].y)) continue;
    const double x = (places[i].x - frame.x) / frame.w * image.width;
    const double y = (places[i].y - frame.y) / frame.h * image.height;
    if (x < 0.0 || y < 0.0 || x >= image.width || y >= image.height) continue;
    const auto pixel = static_cast<std::size_t>(y) * static_cast<std::size_t>(image.width) +
                       static_cast<std::size_t>(x);
    ++count[pixel];
    last[pixel] = static_cast<std::uint32_t>(i);
  }

  // 2. one disc per occupied pixel, as opaque as its points together; row by row of the result, so
  // that what is added up stays in the processor's caches
  const double r = std::max(0.5, radius * pixels_per_point);
  const int reach = static_cast<int>(std::ceil(r));
  std::vector<std::vector<DiscPixel>> disc(2 * static_cast<std::size_t>(reach) + 1);
  for (int dy = -reach; dy <= reach; ++dy) {
    for (int dx = -reach; dx <= reach; ++dx) {
      const double cover = std::clamp(r + 0.5 - std::hypot(dx, dy), 0.0, 1.0);
      if (cover > 0.0) disc[static_cast<std::size_t>(dy + reach)].push_back({dx, cover});
    }
  }
  std::vector<std::vector<Spot>> spots(static_cast<std::size_t>(image.height));
  for (std::size_t pixel = 0; pixel < n_pixels; ++pixel) {
    if (count[pixel] == 0) continue;
    const Colour colour = colours[colours.size() == 1 ? 0 : last[pixel]];
    const double alpha = 1.0 - std::pow(1.0 - colour.alpha, static_cast<double>(count[pixel]));
    const auto width = static_cast<std::size_t>(image.width);
    spots[pixel / width].push_back({static_cast<int>(pixel % width), colour, alpha});
  }
  std::vector<Accumulator> sums(static_cast<std::size_t>(image.width));
  for (int y = 0; y < image.height; ++y) {
    std::ranges::fill(sums, Accumulator{});
    const int end = std::min(image.height, y + reach + 1);
    for (int from_y = std::max(0, y - reach); from_y < end; ++from_y) {
      const auto& row_of_disc = disc[static_cast<std::size_t>(y - from_y + reach)];
      for (const Spot& spot : spots[static_cast<std::size_t>(from_y)]) {
        for (const DiscPixel& part : row_of_disc) {
          const int to_x = spot.x + part.dx;
          if (to_x < 0 || to_x >= image.width) continue;
          sums[static_cast<std::size_t>(to_x)].lay_over(spot.colour, spot.alpha * part.cover);
        }
      }
    }
    for (int x = 0; x < image.width; ++x) {
      const Accumulator& sum = sums[static_cast<std::size_t>(x)];
      if (sum.alpha <= 0.0) continue;
      const auto channel = [&](double v) {
        return nearest_byte(std::clamp(v / sum.alpha, 0.0, 255.0));
      };
      put(image,
          static_cast<std::size_t>(y) * static_cast<std::size_t>(image.width) +
              static_cast<std::size_t>(x),
          {channel(sum.r), channel(sum.g), channel(sum.b), std::min(1.0, sum.alpha)});
    }
  }
  return image;
}

}  // namespace kvscope::plot
