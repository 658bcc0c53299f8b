#include "gui/model/map/map_figure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/figures/maps.hpp"

namespace kvscope::gui {

namespace {

/// The cells of a level that reach into a range of tokens.
CellRange cells_of(TokenRange tokens, int level) {
  return {tokens.begin >> level, ((tokens.end - 1) >> level) + 1};
}

/// The level that the picture has everywhere.
std::optional<int> whole_level(const MapPicture& picture) {
  if (picture.tiles.empty()) return std::nullopt;
  if (picture.n_missing == 0) return picture.level;
  int coarsest = 0;
  for (const MapTile* tile : picture.tiles) coarsest = std::max(coarsest, tile->id.level);
  return coarsest > picture.level ? std::optional(coarsest) : std::nullopt;
}

std::string pooling_sentence(int level, MapPooling pooling) {
  if (level == 0) return "Each cell is the weight of one query and one key.";
  const Index side = Index{1} << level;
  return fmt::format("Each cell is the {} over {} x {} pairs of query and key.",
                     pooling == MapPooling::max ? "largest weight" : "mean weight", side, side);
}

plot::ColourAxis colour_axis(const MapColours& colours, MapPooling pooling) {
  plot::ColourAxis axis;
  axis.masked_label = "not visible";
  if (colours.kind() == MapScaleKind::percentile) {
    axis.axis.label = "share of cells with less weight";
    axis.axis.range = plot::Range{0.0, 1.0};
    axis.axis.format = plot::TickFormat::percent;
    return axis;
  }
  axis.axis.label =
      pooling == MapPooling::max ? "attention weight (max)" : "attention weight (mean)";
  axis.axis.range = colours.range();
  if (colours.kind() == MapScaleKind::log) axis.axis.scale = plot::ScaleKind::log10;
  return axis;
}

}  // namespace

std::optional<MapPair> heaviest_pair(const AttentionHead& head, const MapCell& cell) {
  ThreadPool alone(1);
  const PooledCells weights = head.pool(0, {cell.queries.begin, cell.queries.end},
                                        {cell.keys.begin, cell.keys.end}, alone, {});
  std::optional<MapPair> best;
  float most = -1.0F;
  for (Index query = weights.rows.begin; query < weights.rows.end; ++query) {
    for (Index key = weights.cols.begin; key < weights.cols.end; ++key) {
      const float weight = weights.max[weights.at(query, key)];
      if (!(weight > most)) continue;
      most = weight;
      best = MapPair{query, key};
    }
  }
  return best;
}

std::optional<MapCell> cell_at(const MapPicture& picture, const MapGrid& grid, MapPair pair) {
  const int level = picture.level;
  const Index row = pair.query >> level;
  const Index col = pair.key >> level;
  const TileId id{level, row / kTileCells, col / kTileCells};
  for (const MapTile* tile : picture.tiles) {
    if (!(tile->id == id)) continue;
    const auto at = static_cast<std::size_t>(row % kTileCells * tile->n_cols + col % kTileCells);
    return MapCell{grid.tokens(level, {row, row + 1}), grid.tokens(level, {col, col + 1}),
                   tile->values(MapPooling::max)[at], tile->values(MapPooling::mean)[at],
                   tile->rows[static_cast<std::size_t>(row % kTileCells)]};
  }
  return std::nullopt;
}

namespace {

/// The values of the tiles' cells, as the colours take them; empty if none is there. Sets
/// is_sampled if some rows show one query of many.
std::optional<plot::HeatMap> cells_of_tiles(const MapPicture& picture, const MapGrid& grid,
                                            CellRange rows, CellRange cols, MapPooling pooling,
                                            const MapColours& colours, bool& is_sampled) {
  const auto level = whole_level(picture);
  plot::HeatMap map{.n_rows = rows.size(), .n_cols = cols.size()};
  map.values.assign(static_cast<std::size_t>(map.n_rows * map.n_cols),
                    std::numeric_limits<float>::quiet_NaN());
  bool any = false;
  for (const MapTile* tile : picture.tiles) {
    if (tile->id.level != *level) continue;
    const CellRange own_rows = grid.tile_rows(tile->id);
    const CellRange own_cols = grid.tile_cols(tile->id);
    const std::span<const float> values = tile->values(pooling);
    for (Index row = std::max(rows.begin, own_rows.begin); row < std::min(rows.end, own_rows.end);
         ++row) {
      is_sampled = is_sampled ||
                   tile->rows[static_cast<std::size_t>(row - own_rows.begin)] == RowState::sampled;
      for (Index col = std::max(cols.begin, own_cols.begin); col < std::min(cols.end, own_cols.end);
           ++col) {
        float value = values[static_cast<std::size_t>((row - own_rows.begin) * tile->n_cols + col -
                                                      own_cols.begin)];
        if (std::isnan(value)) continue;
        any = true;
        if (colours.kind() == MapScaleKind::percentile) {
          value = static_cast<float>(colours.unit(static_cast<double>(value)));
        } else if (colours.kind() == MapScaleKind::log) {
          value = std::max(value, static_cast<float>(colours.range().low));
        }
        map.values[static_cast<std::size_t>((row - rows.begin) * map.n_cols + col - cols.begin)] =
            value;
      }
    }
  }
  return any ? std::optional(std::move(map)) : std::nullopt;
}

std::vector<std::string> caption_of(const MapGrid& grid, TokenRange queries, TokenRange keys,
                                    const MapOptions& options, const MapNames& names,
                                    std::optional<Index> query, std::optional<Index> key) {
  std::vector<std::string> caption = {fmt::format(
      "Softmax attention weights of layer {}, query head {} of {} ({}, {} tokens): queries {} to "
      "{}, keys {} to {}.",
      names.layer, names.q_head, names.trace, names.model, grid.n_tokens, queries.begin,
      queries.end - 1, keys.begin, keys.end - 1)};
  if (grid.rows.size() < grid.n_tokens)
    caption.push_back(fmt::format("Queries were recorded for positions {} to {} only.",
                                  grid.rows.begin, grid.rows.end - 1));
  if (grid.window) caption.push_back(fmt::format("A query sees the last {} keys.", *grid.window));
  if (options.sinks() > 0 && !options.fixed_range)
    caption.push_back(
        fmt::format("The first {} keys do not count for the range of colours.", options.sinks()));
  if (options.overlay)
    caption.push_back(options.lost
                          ? "Kept and lost attention alike: what the method keeps is "
                            "covered in the window only."
                          : "The keys that the method keeps are marked in the window only.");
  if (query)
    caption.push_back(fmt::format("Lines: the selected query {}{}.", *query,
                                  key ? fmt::format(" and key {}", *key) : std::string()));
  return caption;
}

}  // namespace

std::optional<plot::Figure> map_figure(const MapPicture& picture, const MapGrid& grid,
                                       const MapView& view, const MapOptions& options,
                                       const MapColours& colours, const MapNames& names,
                                       std::optional<Index> query, std::optional<Index> key) {
  const auto level = whole_level(picture);
  const TokenRange queries = view.queries();
  const TokenRange keys = view.keys();
  if (!level || queries.size() == 0 || keys.size() == 0) return std::nullopt;
  const CellRange rows = cells_of(queries, *level);
  const CellRange cols = cells_of(keys, *level);

  bool is_sampled = false;
  auto cells = cells_of_tiles(picture, grid, rows, cols, options.pooling, colours, is_sampled);
  if (!cells) return std::nullopt;
  plot::HeatMap map = std::move(*cells);
  const auto side = static_cast<double>(Index{1} << *level);
  map.x = {static_cast<double>(cols.begin) * side, static_cast<double>(cols.end) * side};
  map.y = {static_cast<double>(rows.begin) * side, static_cast<double>(rows.end) * side};

  plot::Panel panel =
      figures::attention_panel(std::move(map), "", colour_axis(colours, options.pooling));
  for (plot::Axis* axis : {&panel.x, &panel.y}) {
    axis->format = plot::TickFormat{};  // single positions, where it is zoomed in
    axis->whole_numbers = true;
  }
  panel.x.range = plot::Range{static_cast<double>(keys.begin), static_cast<double>(keys.end)};
  panel.y.range = plot::Range{static_cast<double>(queries.begin), static_cast<double>(queries.end)};
  panel.grid = false;
  panel.aspect =
      std::clamp(static_cast<double>(queries.size()) / static_cast<double>(keys.size()), 0.2, 2.0);
  const auto rule = [&](plot::Rule::Kind kind, Index at) {
    panel.marks.emplace_back(plot::Rule{
        .kind = kind, .at = static_cast<double>(at) + 0.5, .tone = {plot::Role::highlight, 0}});
  };
  if (query && *query >= queries.begin && *query < queries.end) {
    rule(plot::Rule::Kind::horizontal, *query);
  }
  if (key && *key >= keys.begin && *key < keys.end) rule(plot::Rule::Kind::vertical, *key);

  plot::Figure figure{
      .name = "attention-map",
      .title = fmt::format("Attention of layer {}, head {}", names.layer, names.q_head)};
  figure.caption = caption_of(grid, queries, keys, options, names, query, key);
  figure.caption.insert(figure.caption.begin() + 1, pooling_sentence(*level, options.pooling));
  if (*level > picture.level) figure.caption.push_back("Finer cells were still being computed.");
  if (is_sampled)
    figure.caption.push_back("Some rows of cells show one query of many: they were not exact yet.");
  figure.panels.push_back(std::move(panel));
  return figure;
}

}  // namespace kvscope::gui
