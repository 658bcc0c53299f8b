// Results as pictures: the figures of the command line that fit, and free plots of a table's
// columns.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/figure_kind.hpp"
#include "gui/model/results/table_view.hpp"

namespace kvscope::gui {

using ResultPtr = std::shared_ptr<const ResultView>;

/// A figure that can be made with the result that is looked at.
struct PossibleFigure {
  FigureKind kind;
  /// For each entry of kind.kinds: the open results that fit, the one looked at first.
  std::vector<std::vector<ResultPtr>> candidates;
  /// One per needed entry, and per entry that may be left out if there is one.
  std::vector<ResultPtr> chosen;
  /// What is missing, as a sentence with the command that makes it; empty if it can be drawn.
  std::string missing;
};

/// Kinds that take `looked_at` in one of their places, in the order of figure_kinds().
std::vector<PossibleFigure> possible_figures(const std::vector<ResultPtr>& open,
                                             const ResultPtr& looked_at);

/// Where a cell of a layer x head map leads; nowhere for other maps.
RowTarget target_of_cell(const plot::Panel& panel, Index row, Index col);

/// How a free plot shows the lines of a table.
enum class PlotStyle { points, means };

struct FreePlotOptions {
  std::string x;
  std::string y;
  std::string series;  // empty: one series
  PlotStyle style = PlotStyle::means;
  BandKind band = BandKind::ci;
  bool log_x = false;
  bool log_y = false;
  bool operator==(const FreePlotOptions&) const = default;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"x", "column along the x axis"}, self.x);
    visit(Field{"y", "column along the y axis"}, self.y);
    visit(Field{"series", "column whose values are drawn apart"}, self.series);
    visit(Field{"style", "every line as a point, or means of the lines with the same x"},
          self.style);
    visit(Field{"band", "of means: 95 % interval (ci), quartiles, range or none"}, self.band);
    visit(Field{"log-x", "logarithmic x axis"}, self.log_x);
    visit(Field{"log-y", "logarithmic y axis"}, self.log_y);
  }
};

/// Columns that the table has: what was asked for, else a choice that usually means something
/// (budget, mass_mean, selector).
FreePlotOptions with_columns_of(const Table& table, FreePlotOptions options);

struct FreePlot {
  plot::Figure figure;
  /// Of points: the table's row behind point i of mark m. Empty for means.
  std::vector<std::vector<std::uint32_t>> rows_of_mark;
  std::size_t bytes() const;
};

/// Draws these rows, which pass the filters that `filter_words` names in the caption. More than
/// kMostPlotted points are thinned at equal distances, which the caption says, as it says what has
/// no place. Throws ConfigError for columns that are none or words, more than kMostSeries series,
/// or nothing to draw.
FreePlot free_plot(const Table& table, std::span<const std::uint32_t> rows,
                   const FreePlotOptions& options, std::string_view filter_words = {});
inline constexpr std::size_t kMostPlotted = 100'000;
inline constexpr std::size_t kMostSeries = 24;

}  // namespace kvscope::gui
