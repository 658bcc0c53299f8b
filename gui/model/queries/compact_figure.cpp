#include "gui/model/queries/compact_figure.hpp"

#include <utility>

namespace kvscope::gui {

plot::Figure compact_figure(plot::Figure figure, std::string x_label, std::string y_label) {
  figure.title.clear();
  figure.legend = plot::LegendPlace::none;
  plot::Panel& panel = figure.panels.at(0);
  panel.title.clear();
  panel.legend = plot::LegendPlace::none;
  panel.x.label = std::move(x_label);
  panel.y.label = std::move(y_label);
  if (panel.colour) panel.colour->axis.label.clear();
  return figure;
}

}  // namespace kvscope::gui
