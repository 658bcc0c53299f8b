// The tables below the recall curves: numbers of the methods at the sliders' budget, and the heads
// that the selected method leaves below the target.
#pragma once

#include "gui/model/methods/recall_view.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// The height that they take.
float recall_numbers_height(const RecallPicture& picture);

/// A click on a method or head selects it. `shows_failing`: which of the two tables; a switch above
/// them changes it.
void draw_recall_numbers(PanelContext& context, const RecallPicture& picture,
                         const RecallOptions& options, bool& shows_failing);

}  // namespace kvscope::gui
