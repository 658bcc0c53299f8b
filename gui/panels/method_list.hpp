// The list of methods with ticks, beside curves: colour and marker as in the figure, what the
// method does, and why it cannot be shown here.
#pragma once

#include <string>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "gui/model/session/methods.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// What is typed into the field above the list.
struct MethodField {
  std::string typed;
  std::string problem;  // a sentence: it is no method
};

/// The field: a part of a name narrows the list; a method as on the command line, with options or
/// as a stack, is ticked and selected with Enter. Options of what is typed stand below it, from the
/// registry.
void method_field(PanelContext& context, MethodField& field);

/// Lines fill the current ImGui window. A tick changes Session::ticked; a click on a name selects
/// the method. tones: of the ticked items, in their order.
void method_list(PanelContext& context, const std::vector<MethodItem>& items,
                 const std::vector<plot::Tone>& tones, const std::string& part_of_name = {});

}  // namespace kvscope::gui
