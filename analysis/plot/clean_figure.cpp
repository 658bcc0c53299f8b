#include "analysis/plot/clean_figure.hpp"

#include "core/base/escape.hpp"

namespace kvscope::plot {

namespace {

void clean(std::string& text) {
  text = clean_text(text);
}

void clean_axis(Axis& axis) {
  clean(axis.label);
  for (Tick& tick : axis.ticks) clean(tick.label);
}

void clean_mark(Mark& mark) {
  std::visit(
      [](auto& m) {
        if constexpr (requires { m.label; }) clean(m.label);
        if constexpr (requires { m.text; }) clean(m.text);
      },
      mark);
}

}  // namespace

Figure clean_figure(Figure figure) {
  clean(figure.name);
  clean(figure.title);
  for (std::string& sentence : figure.caption) clean(sentence);
  for (Panel& panel : figure.panels) {
    clean(panel.title);
    clean_axis(panel.x);
    clean_axis(panel.y);
    for (Mark& mark : panel.marks) clean_mark(mark);
    if (panel.colour) {
      clean_axis(panel.colour->axis);
      clean(panel.colour->masked_label);
    }
  }
  return figure;
}

}  // namespace kvscope::plot
