// The head atlas: a small attention map of every layer and query head, with a number of each; or
// the difference of a number between two methods, models or runs (head_atlas_difference.hpp), or
// which keys two methods share.
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/figure_kind.hpp"

namespace kvscope::figures {

enum class AtlasOrder {
  as_in_model,  // heads to the right, layers upwards
  by_number,    // the largest, or the largest difference, first, at most 64
};

/// A head at its place in the atlas.
struct HeadTile {
  std::size_t layer = 0;  // slots of the result's axes
  std::size_t head = 0;
  std::size_t column = 0;  // from the left
  std::size_t row = 0;     // from the bottom
};

/// The tiles of head_atlas: tile (column, row) lies over [column, column + 1) x [row, row + 1) of
/// the panel's axes.
std::vector<HeadTile> head_tiles(const FigureInput& input, AtlasOrder order);

/// Of a result of `kvscope analyze heads`, of two, or of one and an overlap; options: metric,
/// selector, against, match, layers, heads.
plot::Figure head_atlas(const FigureInput& input, AtlasOrder order);

/// A kind of figure that head_atlas draws.
FigureKind atlas_kind(std::string name, std::string shows, AtlasOrder order);

}  // namespace kvscope::figures
