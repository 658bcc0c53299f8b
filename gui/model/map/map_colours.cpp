#include "gui/model/map/map_colours.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace kvscope::gui {

namespace {

constexpr int kDroppedBits = 15;
constexpr std::size_t kPlaces = std::size_t{1} << (31 - kDroppedBits);  // of floats >= 0
constexpr double kMostDecades = 8.0;

std::size_t place_of(float weight) {
  return (std::bit_cast<std::uint32_t>(weight) & 0x7FFFFFFFU) >> kDroppedBits;
}

/// The middle of the weights of a place.
double weight_of(std::size_t place) {
  const auto bits = static_cast<std::uint32_t>(place << kDroppedBits);
  return static_cast<double>(std::bit_cast<float>(bits | (1U << (kDroppedBits - 1))));
}

/// The smallest of 1, 2, 5, 10, ... times a power of ten that is not below x > 0.
double rounded_up(double x) {
  const double decade = std::pow(10.0, std::floor(std::log10(x)));
  for (double step : {1.0, 2.0, 5.0}) {
    if (x <= step * decade * (1.0 + 1e-6)) return step * decade;
  }
  return 10.0 * decade;
}

}  // namespace

std::uint32_t rgba(plot::Colour colour) {
  const std::uint8_t bytes[4] = {colour.r, colour.g, colour.b,
                                 static_cast<std::uint8_t>(std::lround(255.0 * colour.alpha))};
  return std::bit_cast<std::uint32_t>(bytes);
}

void WeightCounts::add(const MapTile& tile, MapPooling pooling, Index n_sink, TokenRange queries,
                       TokenRange keys) {
  if (counts_.empty()) counts_.assign(kPlaces, 0);
  if (queries.size() <= 0 || keys.size() <= 0) return;
  const std::span<const float> values = tile.values(pooling);
  const int level = tile.id.level;
  const Index first_row = tile.id.row * kTileCells;
  const Index first_col = tile.id.col * kTileCells;
  const auto own = [level](TokenRange tokens, Index first, Index n) {
    return CellRange{std::clamp<Index>((tokens.begin >> level) - first, 0, n),
                     std::clamp<Index>(((tokens.end - 1) >> level) + 1 - first, 0, n)};
  };
  const CellRange rows = own(queries, first_row, tile.n_rows);
  CellRange cols = own(keys, first_col, tile.n_cols);
  // cells that hold a sink's key are left out whole
  const Index n_sink_cells = (n_sink + (Index{1} << level) - 1) >> level;
  cols.begin =
      std::clamp<Index>(n_sink_cells - first_col, cols.begin, std::max(cols.begin, cols.end));
  float largest = static_cast<float>(largest_);
  for (Index row = rows.begin; row < rows.end; ++row) {
    const RowState state = tile.rows[static_cast<std::size_t>(row)];
    if (state != RowState::exact && state != RowState::sampled) continue;
    for (const float value :
         values.subspan(static_cast<std::size_t>(row * tile.n_cols + cols.begin),
                        static_cast<std::size_t>(std::max<Index>(0, cols.size())))) {
      if (!(value >= 0.0F)) continue;
      ++n_;
      if (value == 0.0F) {
        ++n_zero_;
        continue;
      }
      ++counts_[place_of(value)];
      largest = std::max(largest, value);
    }
  }
  largest_ = static_cast<double>(largest);
}

std::optional<double> WeightCounts::quantile(double q) const {
  const std::int64_t positive = n_ - n_zero_;
  if (positive == 0) return std::nullopt;
  const double wanted = std::clamp(q, 0.0, 1.0) * static_cast<double>(positive);
  std::int64_t seen = 0;
  std::size_t last = 0;
  for (std::size_t place = 0; place < counts_.size(); ++place) {
    if (counts_[place] == 0) continue;
    seen += counts_[place];
    last = place;
    if (static_cast<double>(seen) >= wanted) break;
  }
  return std::min(weight_of(last), largest_);
}

plot::Range automatic_range(MapScaleKind kind, const WeightCounts& counts) {
  const auto high = counts.quantile(1.0);
  if (!high) return {kind == MapScaleKind::linear ? 0.0 : 1e-6, 1.0};
  if (kind == MapScaleKind::linear) {
    // a handful of cells may be far above all others: they are drawn at the end of the scale
    return {0.0, rounded_up(*counts.quantile(0.999))};
  }
  if (kind == MapScaleKind::percentile) return {*counts.quantile(0.0), counts.largest()};
  const double top = std::ceil(std::log10(counts.largest()) - 1e-6);
  const double bottom =
      std::max(top - kMostDecades, std::floor(std::log10(*counts.quantile(0.01)) + 1e-6));
  return {std::pow(10.0, std::min(bottom, top - 1.0)), std::pow(10.0, top)};
}

MapColours::MapColours(MapScaleKind kind, plot::Range range, plot::ColourMap map, MapGround ground,
                       const WeightCounts& counts)
    : kind_(kind), range_(range), ground_(ground), table_(kPlaces) {
  if (kind_ == MapScaleKind::log && !(range_.low > 0.0)) range_.low = 1e-12;
  if (!(range_.low < range_.high)) range_.high = range_.low > 0.0 ? 10.0 * range_.low : 1.0;
  if (kind_ == MapScaleKind::percentile) {
    ranks_.assign(kPlaces, 0.0F);
    const auto positive =
        static_cast<double>(std::max<std::int64_t>(1, counts.n_ - counts.n_zero_));
    double below = 0.0;
    for (std::size_t place = 0; place < counts.counts_.size(); ++place) {
      ranks_[place] = static_cast<float>((below + 0.5 * counts.counts_[place]) / positive);
      below += counts.counts_[place];
    }
  }
  std::uint32_t ramp[256];
  for (int i = 0; i < 256; ++i) ramp[i] = rgba(plot::colour_at(map, i / 255.0));
  for (std::size_t place = 0; place < kPlaces; ++place) {
    const double weight = place == 0 ? 0.0 : weight_of(place);
    const double u = std::isfinite(weight) ? unit(weight) : 1.0;
    table_[place] = ramp[static_cast<std::size_t>(std::lround(255.0 * u))];
  }
}

double MapColours::unit(double weight) const {
  double u = 0.0;
  switch (kind_) {
    case MapScaleKind::linear:
      u = (weight - range_.low) / (range_.high - range_.low);
      break;
    case MapScaleKind::log:
      u = weight > 0.0 ? std::log10(weight / range_.low) / std::log10(range_.high / range_.low)
                       : 0.0;
      break;
    case MapScaleKind::percentile:
      u = weight > 0.0 ? static_cast<double>(
                             ranks_[std::min(kPlaces - 1, place_of(static_cast<float>(weight)))])
                       : 0.0;
      break;
  }
  return std::clamp(u, 0.0, 1.0);
}

double MapColours::weight_at(double unit) const {
  const double u = std::clamp(unit, 0.0, 1.0);
  switch (kind_) {
    case MapScaleKind::linear:
      return range_.low + u * (range_.high - range_.low);
    case MapScaleKind::log:
      return range_.low * std::pow(range_.high / range_.low, u);
    case MapScaleKind::percentile: {
      const auto found = std::ranges::lower_bound(ranks_, static_cast<float>(u));
      const double weight = found == ranks_.end()
                                ? range_.high
                                : weight_of(static_cast<std::size_t>(found - ranks_.begin()));
      return std::clamp(weight, range_.low, range_.high);
    }
  }
  return range_.low;
}

std::uint32_t MapColours::colour(float weight) const {
  return weight >= 0.0F ? table_[place_of(weight)] : ground_.masked;
}

void MapColours::colour_tile(const MapTile& tile, MapPooling pooling,
                             std::span<std::uint32_t> out) const {
  const std::span<const float> values = tile.values(pooling);
  const auto width = static_cast<std::size_t>(tile.n_cols);
  for (std::size_t row = 0; row < static_cast<std::size_t>(tile.n_rows); ++row) {
    const auto to = out.subspan(row * width, width);
    const RowState state = tile.rows[row];
    if (state == RowState::pending || state == RowState::unrecorded) {
      std::ranges::fill(to, state == RowState::pending ? 0U : ground_.unrecorded);
      continue;
    }
    const auto from = values.subspan(row * width, width);
    for (std::size_t i = 0; i < width; ++i) to[i] = colour(from[i]);
  }
}

}  // namespace kvscope::gui
