#include "analysis/figures/maps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/base/statistics.hpp"
#include "analysis/figures/selection.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"

namespace kvscope::figures {

void ArrayData::require_shape(const Shape& shape) const {
  if (spec.shape == shape) return;
  throw FormatError("{}: {} has shape {}, expected {}", where, spec.name, to_string(spec.shape),
                    to_string(shape));
}

void ArrayData::fail() const {
  throw FormatError("{}: {} has shape {}, which does not fit the other arrays", where, spec.name,
                    to_string(spec.shape));
}

plot::HeatMap density_of(std::span<const double> x, std::span<const double> y, plot::Range x_range,
                         plot::Range y_range, Index n_cells) {
  std::vector<double> count(static_cast<std::size_t>(n_cells * n_cells), 0.0);
  plot::HeatMap map;
  const auto cell_of = [&](double v, plot::Range range) {
    return static_cast<Index>(
        std::floor((v - range.low) / (range.high - range.low) * static_cast<double>(n_cells)));
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) continue;
    const bool inside =
        x[i] >= x_range.low && x[i] <= x_range.high && y[i] >= y_range.low && y[i] <= y_range.high;
    if (!inside) continue;
    const Index col = std::min(cell_of(x[i], x_range), n_cells - 1);
    const Index row = std::min(cell_of(y[i], y_range), n_cells - 1);
    count[static_cast<std::size_t>(row * n_cells + col)] += 1.0;
  }
  map.n_rows = map.n_cols = n_cells;
  map.x = x_range;
  map.y = y_range;
  map.show_masked = false;
  for (double c : count) map.values.push_back(c > 0.0 ? static_cast<float>(c) : kNanF);
  return map;
}

plot::Range range_of_counts(std::span<const plot::HeatMap> maps) {
  double most = 2.0;
  for (const plot::HeatMap& map : maps) {
    for (const float count : map.values) most = std::fmax(most, static_cast<double>(count));
  }
  return {1.0, most};
}

PooledMap pool_map(const plot::HeatMap& map, Index most) {
  const Index by_row = (map.n_rows + most - 1) / most;
  const Index by_col = (map.n_cols + most - 1) / most;
  if (by_row <= 1 && by_col <= 1) return {map, {}};
  PooledMap out{map, fmt::format("Each cell is the mean of {} x {} values.", by_row, by_col)};
  out.map.n_rows = (map.n_rows + by_row - 1) / by_row;
  out.map.n_cols = (map.n_cols + by_col - 1) / by_col;
  // the last block may be short: the map's ends move so that cells keep their size
  const double h = (map.y.high - map.y.low) / static_cast<double>(map.n_rows);
  const double w = (map.x.high - map.x.low) / static_cast<double>(map.n_cols);
  out.map.y.high = map.y.low + h * static_cast<double>(out.map.n_rows * by_row);
  out.map.x.high = map.x.low + w * static_cast<double>(out.map.n_cols * by_col);
  out.map.values.clear();
  for (Index r = 0; r < out.map.n_rows; ++r) {
    for (Index c = 0; c < out.map.n_cols; ++c) {
      double sum = 0.0;
      Index n = 0;
      for (Index i = r * by_row; i < std::min((r + 1) * by_row, map.n_rows); ++i) {
        for (Index j = c * by_col; j < std::min((c + 1) * by_col, map.n_cols); ++j) {
          const float v = map.values[static_cast<std::size_t>(i * map.n_cols + j)];
          if (std::isnan(v)) continue;
          sum += static_cast<double>(v);
          ++n;
        }
      }
      out.map.values.push_back(n > 0 ? static_cast<float>(sum / static_cast<double>(n)) : kNanF);
    }
  }
  return out;
}

plot::ColourAxis log_colours(std::string label) {
  plot::ColourAxis colour;
  colour.axis.label = std::move(label);
  colour.axis.scale = plot::ScaleKind::log10;
  return colour;
}

int balanced_columns(std::size_t n_panels) {
  const std::size_t n_rows = std::max<std::size_t>(1, (n_panels + 3) / 4);
  return static_cast<int>(std::max<std::size_t>(1, (n_panels + n_rows - 1) / n_rows));
}

plot::HeatMap unit_cells(std::size_t n_rows, std::size_t n_columns, std::vector<float> values) {
  return {.n_rows = static_cast<Index>(n_rows),
          .n_cols = static_cast<Index>(n_columns),
          .values = std::move(values),
          .x = {0.0, static_cast<double>(n_columns)},
          .y = {0.0, static_cast<double>(n_rows)}};
}

plot::Panel attention_panel(plot::HeatMap map, std::string title, plot::ColourAxis colour) {
  plot::Panel panel{
      .title = std::move(title), .x = {.label = "Key position"}, .y = {.label = "Query position"}};
  panel.x.format = panel.y.format = plot::TickFormat::tokens;
  panel.y.reversed = true;
  panel.colour = std::move(colour);
  panel.marks.emplace_back(std::move(map));
  return panel;
}

plot::Panel head_panel(std::span<const double> layers, std::span<const double> heads,
                       std::span<const double> values, plot::ColourAxis colour) {
  plot::Panel panel;
  panel.x.label = "Query head";
  panel.y.label = "Layer";
  panel.x.ticks = cell_ticks(heads);
  panel.y.ticks = cell_ticks(layers);
  panel.colour = std::move(colour);
  panel.aspect =
      std::clamp(static_cast<double>(layers.size()) / static_cast<double>(heads.size()), 0.5, 1.3);
  panel.marks.emplace_back(unit_cells(layers.size(), heads.size(), {values.begin(), values.end()}));
  return panel;
}

HeadSlots::HeadSlots(const ResultView& result, std::string_view array, const FigureOptions& options)
    : layers(slots_of(result.axis(array, 0), options.layers, "layers", result.name())),
      heads(slots_of(result.axis(array, 1), options.heads, "heads", result.name())) {}

}  // namespace kvscope::figures
