// The grid of layers and heads: recorded cells to click on, KV groups as blocks, kinds of layers
// marked.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "gui/model/traces/trace_facts.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// What the grid says of one cell beyond being there.
struct CellState {
  double shade = 0.0;  // in [0, 1]; 0: not measured
  bool has_problem = false;
};

struct HeadGridInput {
  const HeadGrid& grid;
  Index layer = 0;
  Index q_head = 0;
  std::function<CellState(Index layer, Index q_head)> state;
  std::function<HoverLines(Index layer, Index q_head)> details;  // further lines of the tooltip
};

struct DrawnHeadGrid {
  std::optional<std::pair<Index, Index>> clicked;  // layer, query head
  ImVec2 at = {0, 0};                              // top left corner, in pixels of the window
  GridPlan plan;
};

/// Fills the width of the window.
DrawnHeadGrid draw_head_grid(const PanelContext& context, const HeadGridInput& input);

}  // namespace kvscope::gui
