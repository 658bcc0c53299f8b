#include "gui/render/visible_figure.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "analysis/plot/draw.hpp"
#include "analysis/plot/scale.hpp"

namespace kvscope::gui {

namespace {

using plot::HeatMap;
using plot::Range;

/// Cells [first, last) of n that a range shows; at least one.
struct VisibleCells {
  Index first;
  Index last;
};
VisibleCells visible_cells(Range axis, Index n, Range shown) {
  const double width = (axis.high - axis.low) / static_cast<double>(n);
  const auto cell = [&](double v) {
    return std::clamp((v - axis.low) / width, 0.0, static_cast<double>(n));
  };
  const auto first = std::min(n - 1, static_cast<Index>(std::floor(cell(shown.low))));
  const auto last = static_cast<Index>(std::ceil(cell(shown.high)));
  return {first, std::max(first + 1, last)};
}

Range edges(Range axis, Index n, VisibleCells cells) {
  const double width = (axis.high - axis.low) / static_cast<double>(n);
  return {axis.low + width * static_cast<double>(cells.first),
          cells.last == n ? axis.high : axis.low + width * static_cast<double>(cells.last)};
}

/// Some cells of what ranges show: where a map has values, for the layout's legend.
HeatMap rough_map(const HeatMap& map, Range x, Range y) {
  constexpr Index kMost = 48;
  const VisibleCells cols = visible_cells(map.x, map.n_cols, x);
  const VisibleCells rows = visible_cells(map.y, map.n_rows, y);
  HeatMap out{.n_rows = std::min(rows.last - rows.first, kMost),
              .n_cols = std::min(cols.last - cols.first, kMost),
              .x = edges(map.x, map.n_cols, cols),
              .y = edges(map.y, map.n_rows, rows),
              .show_masked = map.show_masked};
  for (Index row = 0; row < out.n_rows; ++row) {
    for (Index col = 0; col < out.n_cols; ++col) {
      const Index r = rows.first + row * (rows.last - rows.first) / out.n_rows;
      const Index c = cols.first + col * (cols.last - cols.first) / out.n_cols;
      out.values.push_back(map.values[static_cast<std::size_t>(r * map.n_cols + c)]);
    }
  }
  return out;
}

/// A cloud whose points are chosen; small ones are drawn as they are.
const plot::Scatter* large_cloud(const plot::Mark& mark) {
  const auto* cloud = std::get_if<plot::Scatter>(&mark);
  return cloud != nullptr && cloud->x.size() > plot::kMostVectorMarkers ? cloud : nullptr;
}

/// What ranges show of a panel, with room for markers at the edge.
class Sight {
 public:
  Sight(const plot::Panel& panel, const plot::PanelRanges& visible)
      : x_(widened(panel.x, visible.x)), y_(widened(panel.y, visible.y)) {}
  bool shows(const plot::Scatter& cloud, std::size_t i) const {
    return cloud.x[i] >= x_.low && cloud.x[i] <= x_.high && cloud.y[i] >= y_.low &&
           cloud.y[i] <= y_.high;
  }

 private:
  static Range widened(const plot::Axis& axis, Range range) {
    const plot::Scale scale(axis.scale, range);
    return {scale.from_unit(-0.03), scale.from_unit(1.03)};
  }
  Range x_;
  Range y_;
};

/// The points that can be seen.
plot::Scatter visible_points(const plot::Scatter& cloud, const Sight& sight, Thinning thinning) {
  plot::Scatter out{cloud.label, cloud.tone, {}, {}, {}, cloud.size, cloud.opacity};
  for (std::size_t i = 0; i < cloud.x.size(); i += thinning.stride) {
    if (!sight.shows(cloud, i)) continue;
    out.x.push_back(cloud.x[i]);
    out.y.push_back(cloud.y[i]);
    if (!cloud.value.empty()) out.value.push_back(cloud.value[i]);
  }
  return out;
}

/// A point below the frame: a panel of which nothing is visible is still a panel.
plot::Scatter unseen_point(const plot::Panel& panel, const plot::PanelRanges& visible) {
  const plot::Scale y(panel.y.scale, visible.y);
  return {.x = {visible.x.low}, .y = {y.from_unit(-1.0)}};
}

/// Cells of `map` that ranges show, pooled to at most `most_cols` x `most_rows` by means.
HeatMap visible_map(const HeatMap& map, Range x, Range y, Index most_cols, Index most_rows) {
  const VisibleCells cols = visible_cells(map.x, map.n_cols, x);
  const VisibleCells rows = visible_cells(map.y, map.n_rows, y);
  HeatMap out{.n_rows = std::min(rows.last - rows.first, most_rows),
              .n_cols = std::min(cols.last - cols.first, most_cols),
              .x = edges(map.x, map.n_cols, cols),
              .y = edges(map.y, map.n_rows, rows),
              .print_values = map.print_values,
              .show_masked = map.show_masked};
  out.values.resize(static_cast<std::size_t>(out.n_rows * out.n_cols));
  const auto begin_of = [](VisibleCells cells, Index i, Index n) {
    return cells.first + i * (cells.last - cells.first) / n;
  };
  std::vector<std::size_t> ends;  // of the columns that share a pixel, from the first visible one
  for (Index col = 0; col < out.n_cols; ++col)
    ends.push_back(static_cast<std::size_t>(begin_of(cols, col + 1, out.n_cols) - cols.first));
  // by the map's columns first: a loop that the compiler makes vectors of
  std::vector<double> sums(static_cast<std::size_t>(cols.last - cols.first));
  std::vector<float> counts(sums.size());
  for (Index row = 0; row < out.n_rows; ++row) {
    std::ranges::fill(sums, 0.0);
    std::ranges::fill(counts, 0.0F);
    const Index row_end = begin_of(rows, row + 1, out.n_rows);
    for (Index r = begin_of(rows, row, out.n_rows); r < row_end; ++r) {
      const float* values = map.values.data() + r * map.n_cols + cols.first;
      for (std::size_t c = 0; c < sums.size(); ++c) {
        const bool is_masked = values[c] != values[c];
        sums[c] += is_masked ? 0.0F : values[c];
        counts[c] += is_masked ? 0.0F : 1.0F;
      }
    }
    float* to = out.values.data() + row * out.n_cols;
    std::size_t c = 0;
    for (const std::size_t end : ends) {
      double sum = 0.0;
      double count = 0.0;
      for (; c < end; ++c) {
        sum += sums[c];
        count += static_cast<double>(counts[c]);
      }
      *to++ =
          count == 0.0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(sum / count);
    }
  }
  return out;
}

}  // namespace

bool same_range(Range a, Range b) {
  const double room = 1e-9 * (std::abs(a.high - a.low) + std::abs(b.high - b.low));
  return std::abs(a.low - b.low) <= room && std::abs(a.high - b.high) <= room;
}

Thinning thinning_to(const plot::Figure& figure, const std::vector<plot::PanelRanges>& visible,
                     std::size_t most) {
  std::size_t n = 0;
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    const Sight sight(figure.panels[p], visible[p]);
    for (const plot::Mark& mark : figure.panels[p].marks) {
      const plot::Scatter* cloud = large_cloud(mark);
      for (std::size_t i = 0; cloud != nullptr && i < cloud->x.size(); ++i)
        n += sight.shows(*cloud, i) ? 1 : 0;
    }
  }
  return {std::bit_ceil(std::max<std::size_t>(1, (n + most - 1) / most))};
}

double density_for(const plot::Figure& figure, const plot::Layout& layout, double pixels_per_point,
                   double most) {
  double n_pixels = 0.0;
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    const plot::Rect& frame = layout.panels[p].frame;
    const double n_here = frame.w * frame.h * pixels_per_point * pixels_per_point;
    for (const plot::Mark& mark : figure.panels[p].marks) {
      const auto* map = std::get_if<HeatMap>(&mark);
      if (map != nullptr) n_pixels += std::min(n_here, static_cast<double>(map->values.size()));
      if (large_cloud(mark) != nullptr) n_pixels += n_here;
    }
  }
  // a little more than `most` is better than half as sharp
  return 1.0 / std::max(1.0, std::ceil(std::sqrt(n_pixels / (1.1 * most))));
}

FigureFacts::FigureFacts(const plot::Figure& figure) : ranges(plot::ranges_of(figure)) {
  for (const plot::Panel& panel : figure.panels) {
    has_masked.emplace_back();
    for (const plot::Mark& mark : panel.marks) {
      const auto* map = std::get_if<HeatMap>(&mark);
      has_masked.back().push_back(map != nullptr && std::ranges::any_of(map->values, [](float v) {
                                    return !std::isfinite(v);
                                  }));
    }
  }
}

plot::Figure figure_for_layout(const plot::Figure& figure, const FigureFacts& facts,
                               const std::vector<plot::PanelRanges>& visible, Thinning thinning) {
  plot::Figure out{.name = figure.name,
                   .title = figure.title,
                   .columns = figure.columns,
                   .share_x = figure.share_x,
                   .share_y = figure.share_y,
                   .legend = figure.legend};
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    const plot::Panel& panel = figure.panels[p];
    plot::Panel copy{panel.title,        panel.x,    panel.y,     {}, panel.colour, panel.aspect,
                     panel.equal_scales, panel.grid, panel.legend};
    bool was_cut = false;
    for (std::size_t m = 0; m < panel.marks.size(); ++m) {
      const plot::Mark& mark = panel.marks[m];
      if (const auto* map = std::get_if<HeatMap>(&mark)) {
        HeatMap rough = rough_map(*map, visible[p].x, visible[p].y);
        // the legend names masked cells if there are any at all
        if (facts.has_masked[p][m]) rough.values[0] = std::numeric_limits<float>::quiet_NaN();
        copy.marks.emplace_back(std::move(rough));
        was_cut = true;
        continue;
      }
      if (const plot::Scatter* cloud = large_cloud(mark)) {
        copy.marks.emplace_back(visible_points(*cloud, Sight(panel, visible[p]), thinning));
        was_cut = true;
      } else {
        copy.marks.push_back(mark);
      }
    }
    if (was_cut) copy.marks.emplace_back(unseen_point(panel, visible[p]));
    // all ranges are explicit: what was cut away must not count
    copy.x.range = visible[p].x;
    copy.y.range = visible[p].y;
    if (copy.colour) copy.colour->axis.range = facts.ranges[p].colour;
    // ticks that were chosen for the whole axis may miss a small part of a logarithmic one
    for (auto [axis, whole] :
         {std::pair{&copy.x, facts.ranges[p].x}, std::pair{&copy.y, facts.ranges[p].y}}) {
      const bool is_log =
          axis->scale == plot::ScaleKind::log10 || axis->scale == plot::ScaleKind::log2;
      if (!is_log || same_range(*axis->range, whole)) continue;
      const auto n = std::ranges::count_if(axis->ticks, [&range = *axis->range](const auto& tick) {
        return tick.at >= range.low && tick.at <= range.high;
      });
      if (n < 2) axis->ticks.clear();
    }
    out.panels.push_back(std::move(copy));
  }
  return out;
}

void fit_maps(const plot::Figure& figure, const std::vector<plot::PanelRanges>& visible,
              const plot::Layout& layout, double pixels_per_point, plot::Figure& shown) {
  for (std::size_t p = 0; p < figure.panels.size(); ++p) {
    const plot::Rect& frame = layout.panels[p].frame;
    for (std::size_t m = 0; m < figure.panels[p].marks.size(); ++m) {
      const auto* map = std::get_if<HeatMap>(&figure.panels[p].marks[m]);
      if (map == nullptr) continue;
      // pixels that the map's whole visible cells take; the outermost may reach beyond the frame
      const auto pixels = [&](double length, Range axis, Index n, Range range) {
        const Range covered = edges(axis, n, visible_cells(axis, n, range));
        const double part = (covered.high - covered.low) / (range.high - range.low);
        return std::max<Index>(1, std::llround(length * pixels_per_point * part));
      };
      shown.panels[p].marks[m] = visible_map(*map, visible[p].x, visible[p].y,
                                             pixels(frame.w, map->x, map->n_cols, visible[p].x),
                                             pixels(frame.h, map->y, map->n_rows, visible[p].y));
    }
  }
}

int best_columns(const plot::Figure& figure, plot::Size size, const plot::Theme& theme) {
  const int n = static_cast<int>(figure.panels.size());
  const double beside = 5.5 * theme.label_size;  // tick labels and words around a frame
  const double above = 5.0 * theme.label_size;
  double aspect = 0.0;
  for (const plot::Panel& panel : figure.panels) {
    aspect += (panel.equal_scales ? 1.0 : panel.aspect) / n;
  }
  const int own = std::clamp(figure.columns, 1, n);
  int best = own;
  double best_area = 0.0;
  for (int columns = 1; columns <= n; ++columns) {
    const int rows = (n + columns - 1) / columns;
    const double w = size.w / columns - beside;
    const double h = size.h / rows - above;
    if (w <= 0.0 || h <= 0.0) continue;
    // panels may be stretched, but look best near their aspect
    double area = std::min(w, 1.8 * h / aspect) * std::min(h, 1.8 * w * aspect);
    // empty places look unfinished; the figure's own number is the one that its maker chose
    area *= 0.75 + 0.25 * n / (rows * columns);
    if (columns == own) area *= 1.15;
    if (area <= best_area) continue;
    best_area = area;
    best = columns;
  }
  return best;
}

void set_columns(plot::Figure& figure, int columns, const std::vector<plot::PanelRanges>& ranges) {
  if (figure.columns == columns) return;
  figure.columns = columns;
  const auto n_columns = static_cast<std::size_t>(std::max(1, columns));
  for (std::size_t a = 0; a < figure.panels.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const plot::Panel& pa = figure.panels[a];
      const plot::Panel& pb = figure.panels[b];
      if (a % n_columns == b % n_columns &&
          !(same_range(ranges[a].x, ranges[b].x) && pa.x.label == pb.x.label)) {
        figure.share_x = false;
      }
      if (a / n_columns == b / n_columns &&
          !(same_range(ranges[a].y, ranges[b].y) && pa.y.label == pb.y.label)) {
        figure.share_y = false;
      }
    }
  }
}

}  // namespace kvscope::gui
