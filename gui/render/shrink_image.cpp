#include "gui/render/shrink_image.hpp"

#include <algorithm>

namespace kvscope::gui {

plot::Image shrink_image(const plot::Image& image, int width, int height) {
  plot::Image out{std::clamp(width, 1, image.width), std::clamp(height, 1, image.height), {}};
  out.rgba.resize(4 * static_cast<std::size_t>(out.width) * static_cast<std::size_t>(out.height));
  const auto first = [](int i, int n, int n_source) {
    return static_cast<int>(static_cast<std::int64_t>(i) * n_source / n);
  };
  std::uint8_t* to = out.rgba.data();
  for (int y = 0; y < out.height; ++y) {
    const int y0 = first(y, out.height, image.height);
    const int y1 = first(y + 1, out.height, image.height);
    for (int x = 0; x < out.width; ++x, to += 4) {
      const int x0 = first(x, out.width, image.width);
      const int x1 = first(x + 1, out.width, image.width);
      std::uint64_t sum[3] = {0, 0, 0};
      std::uint64_t opacity = 0;
      for (int sy = y0; sy < y1; ++sy) {
        const std::uint8_t* p =
            image.rgba.data() + 4 * (static_cast<std::ptrdiff_t>(sy) * image.width + x0);
        for (int sx = x0; sx < x1; ++sx, p += 4) {
          for (int c = 0; c < 3; ++c) sum[c] += std::uint64_t{p[c]} * p[3];
          opacity += p[3];
        }
      }
      const auto n = static_cast<std::uint64_t>(y1 - y0) * static_cast<std::uint64_t>(x1 - x0);
      for (int c = 0; c < 3; ++c) {
        to[c] = opacity == 0 ? std::uint8_t{0}
                             : static_cast<std::uint8_t>((sum[c] + opacity / 2) / opacity);
      }
      to[3] = static_cast<std::uint8_t>((opacity + n / 2) / n);
    }
  }
  return out;
}

}  // namespace kvscope::gui
