#include "analysis/plot/cells.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/plot/rich_text.hpp"

namespace kvscope::plot {

std::vector<PlacedText> cell_numbers(const HeatMap& m, const Panel& panel,
                                     const PanelLayout& layout, const Theme& theme,
                                     const TextMetrics& metrics) {
  const Point a = layout.place(m.x.low, m.y.low);
  const Point b = layout.place(m.x.high, m.y.high);
  const bool flip_x = a.x > b.x;
  const bool flip_y = a.y < b.y;  // row 0 on top
  const Rect rect{std::min(a.x, b.x), std::min(a.y, b.y), std::abs(b.x - a.x), std::abs(b.y - a.y)};
  const double w = rect.w / static_cast<double>(m.n_cols);
  const double h = rect.h / static_cast<double>(m.n_rows);
  const TickFormat format = panel.colour ? panel.colour->axis.format : TickFormat::number;
  const ColourMap map = panel.colour ? panel.colour->map : ColourMap::sequential;
  std::vector<std::string> texts;
  double widest = 0.0;
  for (float value : m.values) {
    texts.push_back(std::isnan(value) ? std::string()
                                      : tick_text(static_cast<double>(value), format));
    widest = std::max(widest, rich_width(metrics, texts.back(), 1.0));
  }
  const double size =
      std::min({0.85 * theme.tick_size, 0.86 * w / std::max(widest, 0.1), 0.75 * h});
  if (size < 0.55 * theme.tick_size) return {};  // too small to be read: better none
  std::vector<PlacedText> numbers;
  for (Index row = 0; row < m.n_rows; ++row) {  // of the page, from the top left
    for (Index col = 0; col < m.n_cols; ++col) {
      const auto from = static_cast<std::size_t>((flip_y ? row : m.n_rows - 1 - row) * m.n_cols +
                                                 (flip_x ? m.n_cols - 1 - col : col));
      if (texts[from].empty()) continue;
      const Colour cell =
          colour_at(map, layout.colour.to_unit(static_cast<double>(m.values[from])));
      // of black and white one always has a contrast of 4.5; a paler black would not
      constexpr Colour kBlack = colour_from_rgb(0x000000);
      constexpr Colour kWhite = colour_from_rgb(0xFFFFFF);
      const Colour ink = contrast(cell, kBlack) > contrast(cell, kWhite) ? kBlack : kWhite;
      numbers.push_back({{rect.x + (static_cast<double>(col) + 0.5) * w,
                          rect.y + (static_cast<double>(row) + 0.5) * h + 0.36 * size},
                         texts[from],
                         {size, ink, Align::centre}});
    }
  }
  return numbers;
}

std::vector<std::pair<Point, Point>> cell_borders(const HeatMap& m, const PanelLayout& layout) {
  constexpr double kLeast = 7.0;  // points: numbers as high can be read
  const Point a = layout.place(m.x.low, m.y.low);
  const Point b = layout.place(m.x.high, m.y.high);
  const double w = (b.x - a.x) / static_cast<double>(m.n_cols);
  const double h = (b.y - a.y) / static_cast<double>(m.n_rows);
  std::vector<std::pair<Point, Point>> lines;
  if (!(std::min(std::abs(w), std::abs(h)) >= kLeast)) return lines;
  for (Index col = 1; col < m.n_cols; ++col) {
    const double x = a.x + w * static_cast<double>(col);
    lines.push_back({{x, a.y}, {x, b.y}});
  }
  for (Index row = 1; row < m.n_rows; ++row) {
    const double y = a.y + h * static_cast<double>(row);
    lines.push_back({{a.x, y}, {b.x, y}});
  }
  return lines;
}

double box_width(double width, double height, const Theme& theme) {
  return std::clamp(0.12 * std::min(width, height), 0.3, 1.1 * theme.line_width);
}

}  // namespace kvscope::plot
