// The grid of layers and heads: recorded cells to click on, KV groups as blocks, kinds of layers
// marked.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "gui/model/traces/trace_facts.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

struct HeadGridInput {
  const HeadGrid& grid;
  Index layer = 0;
  Index q_head = 0;
  std::function<double(Index layer, Index q_head)> shade;  // of a cell in [0, 1]; 0: not measured
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
