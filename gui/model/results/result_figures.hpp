// Free plots of a table's columns, and where the cells of a result's map lead.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "analysis/figures/possible_figures.hpp"
#include "gui/model/results/table_view.hpp"

namespace kvscope::gui {

/// Where a cell of a layer x head map leads; nowhere for other maps.
RowTarget target_of_cell(const plot::Panel& panel, Index row, Index col);

/// How a free plot shows the lines of a table.
enum class PlotStyle { points, means };

struct FreePlotOptions {
  std::string x = option(x, "x", "", "column along the x axis");
  std::string y = option(y, "y", "", "column along the y axis");
  std::string series =
      option(series, "series", "", "column whose values are drawn apart");  // empty: one series
  PlotStyle style = option(style, "style", PlotStyle::means,
                           "every line as a point, or means of the lines with the same x");
  BandKind band =
      option(band, "band", BandKind::ci, "of means: 95 % interval (ci), quartiles, range or none");
  bool log_x = option(log_x, "log-x", false, "logarithmic x axis");
  bool log_y = option(log_y, "log-y", false, "logarithmic y axis");
  bool operator==(const FreePlotOptions&) const = default;
};

/// Columns that the table has: what was asked for, else a choice that usually means something
/// (budget, mass_mean, selector).
FreePlotOptions with_columns_of(const Table& table, FreePlotOptions options);

/// Draws these rows, which pass the filters that `filter_words` names in the caption; points are of
/// rows, means of nothing. More than kMostPlotted points are thinned at equal distances, which the
/// caption says, as it says what has no place. Throws ConfigError for columns that are none or
/// words, more than kMostSeries series, or nothing to draw.
plot::Figure free_plot(const Table& table, std::span<const std::uint32_t> rows,
                       const FreePlotOptions& options, std::string_view filter_words = {});
inline constexpr std::size_t kMostPlotted = 100'000;
inline constexpr std::size_t kMostSeries = 24;

}  // namespace kvscope::gui
