// Matrices for figures: arrays of results by index, densities of point clouds, maps made small
// enough to print.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/figures/result_view.hpp"
#include "analysis/plot/figure.hpp"

namespace kvscope::figures {

/// An array of a result, read whole. Indices are checked: a file may hold other shapes than its
/// kind has.
struct ArrayData {
  ArrayData(const ResultView& result, std::string_view name)
      : where(result.name()), spec(result.require(name)), values(result.read(name)) {}
  /// Throws FormatError for an index beyond the array or the wrong number of them.
  template <class... I>
  double operator()(I... index) const {
    const Index at[] = {static_cast<Index>(index)...};
    constexpr int kRank = static_cast<int>(sizeof...(I));
    Index offset = 0;
    for (int a = 0; a < kRank; ++a) {
      if (spec.shape.rank != kRank || at[a] < 0 || at[a] >= spec.shape[a]) fail();
      offset = offset * spec.shape[a] + at[a];
    }
    return values[static_cast<std::size_t>(offset)];
  }
  /// Throws FormatError unless the array has this shape.
  void require_shape(const Shape& shape) const;

  std::string where;
  ResultArray spec;
  std::vector<double> values;

 private:
  [[noreturn]] void fail() const;
};

/// How many of the points lie in each of n x n cells of the ranges, NaN where none does.
plot::HeatMap density_of(std::span<const double> x, std::span<const double> y, plot::Range x_range,
                         plot::Range y_range, Index n_cells);

/// So many points are drawn one by one, of more their density.
inline constexpr std::size_t kMostPoints = 20'000;

/// Of the colours of such maps: from one to the largest count, which is at least two.
plot::Range range_of_counts(std::span<const plot::HeatMap> maps);

/// The map with at most `most` rows and columns: means of whole blocks of cells, NaN left out. The
/// sentence says how, for a caption; empty if the map is small enough as it is.
struct PooledMap {
  plot::HeatMap map;
  std::string sentence;
};
PooledMap pool_map(const plot::HeatMap& map, Index most);

/// A colour axis for counts or shares: logarithmic over positive values.
plot::ColourAxis log_colours(std::string label);

/// Panels per row, at most four, so that rows are about equally full.
int balanced_columns(std::size_t n_panels);

/// Cells of size 1 from (0, 0) on: [rows, columns].
plot::HeatMap unit_cells(std::size_t n_rows, std::size_t n_columns, std::vector<float> values);

/// A map [query, key] of attention: queries run downwards.
plot::Panel attention_panel(plot::HeatMap map, std::string title, plot::ColourAxis colour);

/// A layer x head map with the layers upwards from 0 and ticks in the middle of cells.
plot::Panel head_panel(std::span<const double> layers, std::span<const double> heads,
                       std::span<const double> values, plot::ColourAxis colour);

/// The layers and heads of an array [layer, head, ...] that the options name, as its slots.
struct HeadSlots {
  HeadSlots(const ResultView& result, std::string_view array, const FigureOptions& options);
  std::vector<Index> layers;
  std::vector<Index> heads;
};

}  // namespace kvscope::figures
