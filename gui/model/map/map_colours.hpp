// From weights to colours: scales, their automatic ranges, and one table that colours every tile.
//
// A float's upper bits (sign, exponent, 8 bits of mantissa) number the positive floats by size in
// steps of 0.4 %: counts and colours by these numbers serve every scale alike, and colouring a cell
// is one look into a table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/plot/colour.hpp"
#include "analysis/plot/figure.hpp"
#include "gui/model/map/map_tile.hpp"

namespace kvscope::gui {

enum class MapScaleKind {
  linear,
  log,
  percentile,  // by rank among the counted cells
};

/// How many cells had which weight. Cells that see nothing, pending rows and columns of the first
/// `n_sink` keys are left out.
class WeightCounts {
 public:
  /// The cells of the tile that reach into queries x keys.
  void add(const MapTile& tile, MapPooling pooling, Index n_sink, TokenRange queries,
           TokenRange keys);
  std::int64_t n() const { return n_; }
  /// The weight that a share q in [0, 1] of the positive ones does not exceed, to 0.4 %; empty if
  /// there is none.
  std::optional<double> quantile(double q) const;
  /// Largest weight, exact.
  double largest() const { return largest_; }

 private:
  friend class MapColours;
  std::vector<std::uint32_t> counts_;  // by place; empty until something was added
  std::int64_t n_ = 0;
  std::int64_t n_zero_ = 0;
  double largest_ = 0.0;
};

/// A range that suits what was counted, rounded outwards so that it seldom changes: linear from 0
/// to 1, 2 or 5 times a power of ten; log10 over whole decades, at most eight. Percentile: the
/// smallest and largest weight.
plot::Range automatic_range(MapScaleKind kind, const WeightCounts& counts);

/// The colours of cells that have no weight to show, as RGBA bytes in memory order.
struct MapGround {
  std::uint32_t masked = 0xFFD0D0D0;
  std::uint32_t unrecorded = 0xFFB0B0B0;
};

/// The table of one scale.
class MapColours {
 public:
  /// `counts` is for percentile. A range with low >= high is widened.
  MapColours(MapScaleKind kind, plot::Range range, plot::ColourMap map, MapGround ground,
             const WeightCounts& counts);

  MapScaleKind kind() const { return kind_; }
  plot::Range range() const { return range_; }
  /// Place of a weight on the colour bar, in [0, 1].
  double unit(double weight) const;
  /// The weight at a place of the colour bar: what its ticks say.
  double weight_at(double unit) const;
  std::uint32_t colour(float weight) const;

  /// RGBA bytes, row by row [n_rows, n_cols]; pending rows are transparent. out has the size of the
  /// tile.
  void colour_tile(const MapTile& tile, MapPooling pooling, std::span<std::uint32_t> out) const;

 private:
  MapScaleKind kind_;
  plot::Range range_;
  MapGround ground_;
  std::vector<std::uint32_t> table_;  // by place
  std::vector<float> ranks_;          // percentile: by place
};

/// Bytes r, g, b, a in memory order as one number.
std::uint32_t rgba(plot::Colour colour);

}  // namespace kvscope::gui
