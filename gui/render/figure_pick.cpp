#include "gui/render/figure_pick.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace kvscope::gui {

namespace {

/// The arrays of marks that have points.
struct Points {
  const std::vector<double>* x = nullptr;
  const std::vector<double>* y = nullptr;
  const std::vector<std::size_t>* of = nullptr;
};

Points points_of(const plot::Mark& mark) {
  if (const auto* line = std::get_if<plot::Line>(&mark)) return {&line->x, &line->y, &line->of};
  if (const auto* cloud = std::get_if<plot::Scatter>(&mark))
    return {&cloud->x, &cloud->y, &cloud->of};
  return {};
}

bool pick_cell(const plot::HeatMap& map, FigureHit& hit) {
  const double u = (hit.x - map.x.low) / (map.x.high - map.x.low);
  const double v = (hit.y - map.y.low) / (map.y.high - map.y.low);
  if (!(u >= 0.0 && u <= 1.0 && v >= 0.0 && v <= 1.0)) return false;
  const auto cell = [](double unit, Index n) {
    return std::min(n - 1, static_cast<Index>(unit * static_cast<double>(n)));
  };
  const Index col = cell(u, map.n_cols);
  const Index row = cell(v, map.n_rows);
  const float value = map.values[static_cast<std::size_t>(row * map.n_cols + col)];
  if (std::isnan(value) && !map.show_masked) return false;
  hit.row = row;
  hit.col = col;
  hit.value = static_cast<double>(value);
  return true;
}

/// The nearest point within reach, of equally near ones the one on top.
bool pick_point(const plot::Panel& panel, const plot::PanelLayout& layout, plot::Point cursor,
                double reach, FigureHit& hit) {
  const auto data = [&](double x, double y) {
    return std::pair{layout.x.scale.from_unit((x - layout.frame.x) / layout.frame.w),
                     layout.y.scale.from_unit((layout.frame.bottom() - y) / layout.frame.h)};
  };
  // All points are gone through in every frame: those outside of this are not placed.
  const auto [xa, ya] = data(cursor.x - reach, cursor.y - reach);
  const auto [xb, yb] = data(cursor.x + reach, cursor.y + reach);
  const auto [x0, x1] = std::minmax({xa, xb});
  const auto [y0, y1] = std::minmax({ya, yb});
  double nearest = reach * reach;
  for (std::size_t m = 0; m < panel.marks.size(); ++m) {
    const Points points = points_of(panel.marks[m]);
    for (std::size_t i = 0; points.x != nullptr && i < points.x->size(); ++i) {
      const double x = (*points.x)[i];
      const double y = (*points.y)[i];
      if (!(x >= x0 && x <= x1 && y >= y0 && y <= y1)) continue;
      const plot::Point at = layout.place(x, y);
      const double dx = at.x - cursor.x;
      const double dy = at.y - cursor.y;
      const double distance = dx * dx + dy * dy;
      if (!(distance <= nearest)) continue;
      nearest = distance;
      hit.mark = m;
      hit.point = i;
      hit.point_x = x;
      hit.point_y = y;
      hit.of.reset();
      if (!points.of->empty()) hit.of = (*points.of)[i];
      const auto* cloud = std::get_if<plot::Scatter>(&panel.marks[m]);
      hit.value.reset();
      if (cloud != nullptr && !cloud->value.empty()) hit.value = cloud->value[i];
    }
  }
  return hit.point.has_value();
}

}  // namespace

std::optional<FigureHit> figure_hit(const plot::Figure& figure, const plot::Layout& layout,
                                    plot::Point cursor, double reach) {
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    const plot::PanelLayout& place = layout.panels[p];
    if (!place.frame.contains(cursor)) continue;
    const plot::Panel& panel = figure.panels[p];
    FigureHit hit{.panel = p,
                  .x = place.x.scale.from_unit((cursor.x - place.frame.x) / place.frame.w),
                  .y = place.y.scale.from_unit((place.frame.bottom() - cursor.y) / place.frame.h)};
    const bool is_point = pick_point(panel, place, cursor, reach, hit);
    const std::optional<double> value_of_point = hit.value;
    for (std::size_t m = panel.marks.size(); m-- > 0;) {
      const auto* map = std::get_if<plot::HeatMap>(&panel.marks[m]);
      if (map == nullptr || !pick_cell(*map, hit)) continue;
      if (!is_point) hit.mark = m;
      break;
    }
    if (is_point && value_of_point) hit.value = value_of_point;
    return hit;
  }
  return std::nullopt;
}

}  // namespace kvscope::gui
