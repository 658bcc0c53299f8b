#include "notebooks_export/pgfplots_style.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvscope {

using namespace plot;

std::string tex_colour(Colour c) {
  return fmt::format("{{rgb,255:red,{};green,{};blue,{}}}", c.r, c.g, c.b);
}

std::string_view tex_dash(Dash dash) {
  constexpr std::string_view kNames[] = {"solid", "dashed", "densely dotted", "dash dot"};
  return kNames[static_cast<std::size_t>(dash)];
}

std::string tex_marker(const SeriesStyle& style, double radius) {
  constexpr std::string_view kNames[] = {"*", "square*", "triangle*", "diamond*", "triangle*",
                                         "+", "x",       "pentagon*", kStarMark};
  const bool down = style.marker == MarkerShape::triangle_down;
  return fmt::format("mark={},mark size={:.2f}pt,mark options={{solid{},fill={}}}",
                     kNames[static_cast<std::size_t>(style.marker)], radius,
                     down ? ",rotate=180" : "", tex_colour(style.colour));
}

std::string tex_star() {
  std::string out = fmt::format("\\pgfdeclareplotmark{{{}}}{{", kStarMark);
  bool is_first = true;
  for (const Point& p : marker_outline(MarkerShape::star)) {
    out +=
        fmt::format("\\{}{{\\pgfpoint{{{:.3f}\\pgfplotmarksize}}{{{:.3f}\\pgfplotmarksize}}}}%\n",
                    is_first ? "pgfpathmoveto" : "pgfpathlineto", p.x, -p.y);
    is_first = false;
  }
  return out + "\\pgfpathclose\\pgfusepathqfill}\n";
}

void thin_curve(const std::vector<double>& x, const std::vector<double>& y,
                std::vector<double>& out_x, std::vector<double>& out_y) {
  constexpr std::size_t kStretches = 600;
  if (x.size() <= 4 * kStretches) {
    out_x = x;
    out_y = y;
    return;
  }
  for (std::size_t s = 0; s < kStretches; ++s) {
    const std::size_t first = s * x.size() / kStretches;
    const std::size_t end = (s + 1) * x.size() / kStretches;
    const auto [low, high] = std::minmax_element(y.begin() + static_cast<std::ptrdiff_t>(first),
                                                 y.begin() + static_cast<std::ptrdiff_t>(end));
    for (const auto& it : {std::min(low, high), std::max(low, high)}) {
      const auto i = static_cast<std::size_t>(it - y.begin());
      out_x.push_back(x[i]);
      out_y.push_back(y[i]);
    }
  }
}

std::string tex_colour_map(ColourMap map) {
  std::string out = "colormap={kvscope}{";
  for (int i = 0; i <= 16; ++i) {
    const Colour c = colour_at(map, i / 16.0);
    out += fmt::format("rgb255=({},{},{}) ", c.r, c.g, c.b);
  }
  return out + "}";
}

}  // namespace kvscope
