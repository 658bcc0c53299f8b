// The grid of layers and heads: recorded cells to click on, KV groups as blocks, kinds of layers
// marked.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gui/model/trace_facts.hpp"
#include "gui/panels/landmarks.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// What the grid says of one cell beyond being there.
struct CellState {
  double shade = 0.0;  // in [0, 1]; 0: not measured
  bool has_problem = false;
  std::vector<std::pair<std::string, std::string>> details;  // lines of the tooltip
};

struct HeadGridInput {
  const HeadGrid& grid;
  Index layer = 0;
  Index q_head = 0;
  std::function<CellState(Index layer, Index q_head)> state;
};

/// A grid as it was drawn.
struct DrawnHeadGrid {
  std::optional<std::pair<Index, Index>> clicked;  // layer and query head
  GridPlan plan;
  ImVec2 at;   // top left corner of the cells, in pixels of the window
  ImVec2 low;  // corners of what can be seen
  ImVec2 high;
};

/// Fills the width of the window.
DrawnHeadGrid draw_head_grid(const PanelContext& context, const HeadGridInput& input);

/// Middles of the recorded cells in sight, as "layer 3 head 2".
Landmarks landmarks_of(const HeadGrid& grid, const DrawnHeadGrid& drawn);

}  // namespace kvscope::gui
