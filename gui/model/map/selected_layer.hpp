// The keys that a selector chose, as a layer over the attention map: what is below a pixel is
// folded into coverage.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/plot/colour.hpp"
#include "gui/model/map/map_view.hpp"
#include "gui/model/tokens/token_reading.hpp"

namespace kvscope::gui {

struct SelectedLayer {
  Index width = 0;  // pixels
  Index height = 0;
  MapRect shown;                      // the part of the map that it covers
  std::vector<std::uint32_t> pixels;  // [height, width], RGBA bytes in memory order
  std::size_t bytes() const { return sizeof *this + pixels.size() * sizeof pixels[0]; }
};

/// What covers the rows of which nothing is known: lines upwards to the right over a ground.
struct Hatching {
  plot::Colour ground;
  plot::Colour line;
};

/// One pixel of the layer per pixel of the view, of the lists of one head. Its opacity grows with
/// the share of its pairs (measured queries x keys) that were chosen, from 0.4 of the colour's own
/// where any was. Measured queries are at least a pixel high; others leave their rows clear, or
/// with `unmeasured` hatched as far as their queries see: what lies under a clear pixel is then
/// known not to be chosen. Of queries that share a row of pixels a few stand for all.
SelectedLayer fold_selected(const MethodSelections& kept, const MapView& view, plot::Colour colour,
                            const std::optional<Hatching>& unmeasured = std::nullopt);

}  // namespace kvscope::gui
