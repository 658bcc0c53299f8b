#include "gui/render/figure_pick.hpp"

#include <algorithm>
#include <cmath>

namespace kvscope::gui {

namespace {

constexpr int kSide = 128;  // cells of a grid per axis

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

/// The cell along one axis; what lies outside belongs to the border.
int cell_of(const plot::Scale& scale, double value) {
  return static_cast<int>(std::clamp(scale.to_unit(value) * kSide, 0.0, kSide - 1.0));
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

}  // namespace

void FigurePicker::set_figure(const plot::Figure& figure,
                              const std::vector<plot::PanelRanges>& whole) {
  grids_.clear();
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    const plot::Panel& panel = figure.panels[p];
    grids_.push_back(
        {.x = plot::Scale(panel.x.scale, whole[p].x), .y = plot::Scale(panel.y.scale, whole[p].y)});
  }
}

void FigurePicker::make(const plot::Panel& panel, Grid& grid) {
  constexpr std::size_t kCells = std::size_t{kSide} * kSide;
  grid.start.assign(kCells + 1, 0);
  const auto visit = [&](auto&& body) {
    for (std::size_t m = 0; m < panel.marks.size(); ++m) {
      const Points points = points_of(panel.marks[m]);
      for (std::size_t i = 0; points.x != nullptr && i < points.x->size(); ++i) {
        const double x = (*points.x)[i];
        const double y = (*points.y)[i];
        if (!std::isfinite(grid.x.to_unit(x)) || !std::isfinite(grid.y.to_unit(y))) continue;
        const auto cell = static_cast<std::size_t>(cell_of(grid.y, y) * kSide + cell_of(grid.x, x));
        body(cell, Entry{static_cast<std::uint32_t>(m), static_cast<std::uint32_t>(i)});
      }
    }
  };
  visit([&](std::size_t cell, Entry) { ++grid.start[cell + 1]; });
  for (std::size_t c = 0; c < kCells; ++c) grid.start[c + 1] += grid.start[c];
  grid.entries.resize(grid.start.back());
  std::vector<std::uint32_t> next(grid.start.begin(), grid.start.end() - 1);
  visit([&](std::size_t cell, Entry entry) { grid.entries[next[cell]++] = entry; });
  grid.is_made = true;
}

bool FigurePicker::pick_point(const plot::Panel& panel, const plot::PanelLayout& layout,
                              const Grid& grid, plot::Point cursor, double reach, FigureHit& hit) {
  const auto data = [&](double x, double y) {
    return std::pair{layout.x.scale.from_unit((x - layout.frame.x) / layout.frame.w),
                     layout.y.scale.from_unit((layout.frame.bottom() - y) / layout.frame.h)};
  };
  const auto [xa, ya] = data(cursor.x - reach, cursor.y - reach);
  const auto [xb, yb] = data(cursor.x + reach, cursor.y + reach);
  const auto [col0, col1] = std::minmax({cell_of(grid.x, xa), cell_of(grid.x, xb)});
  const auto [row0, row1] = std::minmax({cell_of(grid.y, ya), cell_of(grid.y, yb)});
  double nearest = reach * reach;
  bool found = false;
  for (int row = row0; row <= row1; ++row) {
    for (int col = col0; col <= col1; ++col) {
      const auto cell = static_cast<std::size_t>(row * kSide + col);
      for (std::uint32_t e = grid.start[cell]; e < grid.start[cell + 1]; ++e) {
        const Entry entry = grid.entries[e];
        const plot::Mark& mark = panel.marks[entry.mark];
        const Points points = points_of(mark);
        const double x = (*points.x)[entry.point];
        const double y = (*points.y)[entry.point];
        const plot::Point at = layout.place(x, y);
        const double dx = at.x - cursor.x;
        const double dy = at.y - cursor.y;
        const double distance = dx * dx + dy * dy;
        // of equally near ones the one on top
        const bool closer = distance < nearest ||
                            (found && distance == nearest &&
                             std::pair(*hit.mark, *hit.point) <
                                 std::pair<std::size_t, std::size_t>(entry.mark, entry.point));
        if (!closer && !(distance == nearest && !found)) continue;
        nearest = distance;
        found = true;
        hit.mark = entry.mark;
        hit.point = entry.point;
        hit.point_x = x;
        hit.point_y = y;
        hit.of.reset();
        if (!points.of->empty()) hit.of = (*points.of)[entry.point];
        const auto* cloud = std::get_if<plot::Scatter>(&mark);
        hit.value.reset();
        if (cloud != nullptr && !cloud->value.empty()) hit.value = cloud->value[entry.point];
      }
    }
  }
  return found;
}

std::optional<FigureHit> FigurePicker::pick(const plot::Figure& figure, const plot::Layout& layout,
                                            plot::Point cursor, double reach) {
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    const plot::PanelLayout& place = layout.panels[p];
    if (!place.frame.contains(cursor)) continue;
    const plot::Panel& panel = figure.panels[p];
    FigureHit hit{.panel = p,
                  .x = place.x.scale.from_unit((cursor.x - place.frame.x) / place.frame.w),
                  .y = place.y.scale.from_unit((place.frame.bottom() - cursor.y) / place.frame.h)};
    if (!grids_[p].is_made) make(panel, grids_[p]);
    const bool is_point = pick_point(panel, place, grids_[p], cursor, reach, hit);
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
