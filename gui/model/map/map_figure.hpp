// What is in sight of an attention map, as a figure: for export and for copying its numbers.
#pragma once

#include <optional>
#include <string>

#include "analysis/plot/figure.hpp"
#include "gui/model/map/attention_tiles.hpp"
#include "gui/model/map/map_options.hpp"

namespace kvscope::gui {

/// What the caption says about the map's origin.
struct MapNames {
  std::string trace;  // "verifier.h5"
  std::string model;  // "verifier"
  Index layer = 0;
  Index q_head = 0;
};

/// Cells at the level that the view shows, cut to the cells in sight; coarser ones where the finer
/// ones are not there yet. Empty if there is nothing at all. The selected pair becomes thin lines.
std::optional<plot::Figure> map_figure(const MapPicture& picture, const MapGrid& grid,
                                       const MapView& view, const MapOptions& options,
                                       const MapColours& colours, const MapNames& names,
                                       std::optional<Index> query, std::optional<Index> key);

/// The value of the cell that holds a pair; empty if no tile of the picture's level has it yet.
/// NaN: nothing is seen there.
struct MapCell {
  TokenRange queries;
  TokenRange keys;
  float max = 0.0F;
  float mean = 0.0F;
  RowState state = RowState::pending;
};
std::optional<MapCell> cell_at(const MapPicture& picture, const MapGrid& grid, MapPair pair);

/// The pair of largest weight in a cell: of equal ones the first query, then the first key. Empty
/// if no recorded query sees a key there. Reads every weight of the cell.
std::optional<MapPair> heaviest_pair(const AttentionHead& head, const MapCell& cell);

}  // namespace kvscope::gui
