// The keys that a selector chose, as a layer over the attention map: what is below a pixel is
// folded into coverage.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "analysis/plot/colour.hpp"
#include "core/attention/selection.hpp"
#include "gui/model/map_view.hpp"

namespace kvscope::gui {

/// The chosen keys of one measured query, ascending.
using SelectedRow = std::pair<Index, std::vector<KeyPos>>;

struct SelectedLayer {
  Index width = 0;  // pixels
  Index height = 0;
  std::vector<std::uint32_t> pixels;  // [height, width], RGBA bytes in memory order
};

/// One pixel of the layer per pixel of the view. Its opacity grows with the share of its pairs
/// (measured queries x keys) that were chosen, from a third of the colour's own where any was.
/// Measured queries are at least a pixel high; others leave their rows clear. rows: ascending.
SelectedLayer fold_selected(std::span<const SelectedRow> rows, const MapView& view,
                            plot::Colour colour);

}  // namespace kvscope::gui
