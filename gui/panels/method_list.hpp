// The list of methods with ticks, beside curves: colour and marker as in the figure, what the
// method does, and why it cannot be shown here.
#pragma once

#include <vector>

#include "analysis/plot/figure.hpp"
#include "gui/model/method_items.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// Lines fill the current ImGui window. A tick changes Session::ticked; a click on a name selects
/// the method. tones: of the ticked items, in their order.
void method_list(PanelContext& context, const std::vector<MethodItem>& items,
                 const std::vector<plot::Tone>& tones);

}  // namespace kvscope::gui
