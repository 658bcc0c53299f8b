#include "gui/model/results/compact_figure.hpp"

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

std::size_t figure_bytes(const plot::Figure& figure) {
  std::size_t bytes = 0;
  for (const plot::Panel& panel : figure.panels) {
    for (const plot::Mark& mark : panel.marks) {
      bytes += sizeof mark + 4 * sizeof(double) * plot::count_points(mark);
    }
  }
  return bytes;
}

}  // namespace kvscope::gui
