#include "gui/panels/panel_base.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "notebooks_export/figure_csv.hpp"

namespace kvscope::gui {

void take_brush(PanelContext& context, Brush brush) {
  context.session.set_brush(std::move(brush));
  const Brush& taken = context.session.brush();
  context.requests.flash =
      taken.empty() ? "nothing is in the lasso" : taken.words() + " (Esc lets go)";
}

void show_figure(PanelContext& context, FigureView& view, const plot::Figure& figure, ImVec2 size,
                 const FigureStyle& style) {
  view.show(context.fonts, context.textures, figure, size, style);
  if (view.is_rough()) context.requests.redraw = true;
}

void show_figure(PanelContext& context, FigureView& view, const plot::Figure& figure, ImVec2 size,
                 bool takes_lasso) {
  const FigureStyle style{
      .ground = context.look.ground, .paper = context.look.surface, .takes_lasso = takes_lasso};
  show_figure(context, view, figure, size, style);
}

nlohmann::ordered_json Panel::options() const {
  return nlohmann::ordered_json::object();
}

std::optional<std::string> Panel::csv() const {
  const auto shown = figure();
  if (!shown) return std::nullopt;
  return figure_csv(*shown);
}

}  // namespace kvscope::gui
